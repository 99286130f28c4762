"""Manual requests to this node: stops and restarts, with or without a running agent."""
