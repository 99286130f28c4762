"""The hardware labels of a cluster's node: found on the machine, decided, written and measured."""
