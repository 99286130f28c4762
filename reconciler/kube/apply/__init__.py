"""Write a cluster's objects as planned."""
