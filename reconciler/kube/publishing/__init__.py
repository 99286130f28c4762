"""What a cluster sees of the services of agent nodes."""
