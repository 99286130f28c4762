"""One node, wired: what the fleet wants here, what is observed, and how a change is made."""
