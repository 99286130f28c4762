"""What people ask of this node by hand: stops and restarts, beside a running agent or without."""
