"""Where model files come from: one module a scheme, and what it is known by (`sources.py`)."""
