"""A reconciler that stays: who leads, and what it serves."""
