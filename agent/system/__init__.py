"""What the agent asks of the operating system: its clocks and its tools."""
