"""Which API server a name means, and who we are there."""
