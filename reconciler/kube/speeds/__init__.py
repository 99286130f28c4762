"""How fast pods write now: their companions are asked, and the status of their service says it."""
