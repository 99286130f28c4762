"""Faults that are planted on purpose, to see which of them a room's own tests notice.

    python -m tests.mutants                           30 faults in each room of decisions
    python -m tests.mutants core loop --faults 100    some rooms
    python -m tests.mutants --seed 7                  these faults again
    python -m tests.mutants core --at reconciler/core/prune.py:103     each fault of a line
    python -m tests.mutants core --at reconciler/core/prune.py         each fault of a file

A fault changes an operator, a number, a condition, a call or a returned value (`faults.py`). What a
room is, and which tests are its own, is a row of `rooms.py`. Only tests that run the line are run.
A fault that lives is a decision that no test of the room holds, or changes nothing that anybody
could see: `equivalent.py` argues which. Exit 1 when less than nine of ten fell.
"""
