"""What every program says of itself to Prometheus: one table of names, one way to write them."""
