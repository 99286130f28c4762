"""Node agents, read over the network. Nothing here tells one what to run: it may be woken."""
