"""What a cluster is told of its services: statuses, conditions and events."""
