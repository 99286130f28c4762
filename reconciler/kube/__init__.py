"""A Kubernetes cluster as a target, and as a source. Imported only where a cluster is asked for."""
