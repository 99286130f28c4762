"""Faults that nobody could see: the program does the same with them. Each with its reason.

A row that no longer names a fault of its file is refused by tests/project/test_mutants.py.
"""

from __future__ import annotations

# The file: (the whole line, what stood there and what was planted, as a run prints them): why
# nothing changes.
EQUIVALENT: dict[str, dict[tuple[str, str, str], str]] = {}
