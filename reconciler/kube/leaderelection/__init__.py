"""Which of several processes applies a fleet: Leases."""
