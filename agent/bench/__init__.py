"""How fast a model answers on this machine: measured on the process that serves it."""
