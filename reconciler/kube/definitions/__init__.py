"""The kinds of the fleet as an API server takes them."""
