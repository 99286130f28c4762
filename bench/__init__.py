"""What the program costs, measured: each module here prints a table, and `python -m bench` all."""
