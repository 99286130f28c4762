"""How well memory is estimated."""
