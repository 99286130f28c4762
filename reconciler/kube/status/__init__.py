"""The status of services in a cluster: statuses, conditions and events."""
