"""What runs of a fleet in a cluster, and why it does not: from Deployments, Jobs and pods."""
