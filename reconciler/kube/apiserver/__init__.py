"""One API server: who we are there, how it is asked, and what its answers mean."""
