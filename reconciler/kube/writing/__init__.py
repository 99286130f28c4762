"""Bringing a cluster's objects to what a plan says, and knowing which are ours."""
