"""Faults that nobody could see: the program does the same with them. Each with its reason."""

from __future__ import annotations

# (the file, what stood there, what was planted in its place): why nothing changes
EQUIVALENT: dict[tuple[str, str, str], str] = {}
