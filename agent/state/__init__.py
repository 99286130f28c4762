"""What a node must remember, on disk: its directory, and the small files in it."""
