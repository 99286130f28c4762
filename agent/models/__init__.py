"""The model files of this machine: the store, and what brings them to it."""
