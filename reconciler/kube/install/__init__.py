"""The objects of an installation, and how they are written and removed."""
