"""The fleet as it was read, and what it asks of one target. Pure."""
