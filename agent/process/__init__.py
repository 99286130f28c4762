"""The process of one service: start it, watch it, change it, stop it, and find it again after a
restart."""
