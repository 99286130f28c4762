"""A cluster's own objects as the fleet."""
