"""What to do with each object of a cluster."""
