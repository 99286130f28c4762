"""How fast models are in a cluster: which Jobs measure them, and what came of it."""
