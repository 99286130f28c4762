"""What this machine is, and what it has left: devices, memory, pressure."""
