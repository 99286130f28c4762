"""What a node's memory holds: its pools, who fits, who takes what, and what would fit. Pure."""
