"""What an installation puts into a cluster, and how it is put there and taken out."""
