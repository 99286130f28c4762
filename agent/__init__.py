"""The node's side: processes, model store and hardware facts of one machine."""
