"""The model files of this machine: the store, and the downloads that fill it."""
