"""The client of one API server: credentials, requests, and the meaning of its responses."""
