"""The memory of a node: its pools, what fits, what each service takes, and smaller settings that
would fit. Pure."""
