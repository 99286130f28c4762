"""Which service runs where, and why; what pods are made from."""
