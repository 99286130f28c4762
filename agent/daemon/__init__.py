"""What stays and follows a source as this machine's agent, and its log."""
