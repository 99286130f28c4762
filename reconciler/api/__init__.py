"""The objects of a fleet repository and of the wire, and what can be wrong with them. Pure."""
