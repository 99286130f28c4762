"""Inputs that nobody thought of, for every reader of what others wrote: `python -m tests.fuzz`.

An input is bytes. A reader may end in its documented error and in nothing else, within a bounded
time and a bounded memory. An input that breaks this is made smaller and kept in `corpus/`, which
the tests read again. See `__main__` for the command.
"""
