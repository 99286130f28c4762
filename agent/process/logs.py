"""The log of a service's process: one file that the process appends to, rotated under it.

The process has the file itself, not a pipe to us, so it keeps logging while we are away. Rotation
(`agent.state.room.rotate`) therefore copies and truncates; lines written between the two are lost,
as with logrotate.
"""

from __future__ import annotations

import os
from pathlib import Path

START_MARK = b"--- fleet-reconciler starts "
_TAIL_BYTES = 64 * 1024


def open_log(path: Path, marker: str) -> int:
    """Open the log for appending. A line with the marker separates this run from earlier ones."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, START_MARK + f"{marker}\n".encode())
    return descriptor


def mark_again(path: Path, marker: str) -> None:
    """Start a new tail within the same run: the lines before it were handled already."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, f"--- fleet-reconciler reloads {marker}\n".encode())
    finally:
        os.close(descriptor)


def tail_of_run(path: Path, marker: str) -> str:
    """The end of what one run printed; empty if there is nothing or it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    _, separator, after = text.rpartition(f"{marker}\n")
    return after if separator else text
