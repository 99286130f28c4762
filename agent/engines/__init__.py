"""The programs that run models on this machine, and the commands that start them."""
