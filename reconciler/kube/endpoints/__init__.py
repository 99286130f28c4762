"""The services of agent nodes as endpoints in a cluster."""
