"""A node that takes its desired state from a cluster's API, and publishes what it serves there."""
