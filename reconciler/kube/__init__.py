"""A Kubernetes cluster as a target, and as a source. Imported only by commands that use a
cluster."""
