"""The log of a service's process: one file that the process appends to, rotated under it.

The process has the file itself, not a pipe to us, so it keeps logging while we are away. Rotation
therefore copies and truncates; lines written between the two are lost, as with logrotate.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path

LOG_CAP_BYTES = 10 * 1024 * 1024
LOG_KEEP = 3  # older files: current.log.1 is the newest
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


def rotate(path: Path, cap_bytes: int = LOG_CAP_BYTES, keep: int = LOG_KEEP) -> bool:
    """Rotate the file if it is over its cap: keep its last `cap_bytes` as current.log.1, shift the
    older ones, and truncate it. Returns whether it did."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    if size < cap_bytes:
        return False
    older = [path.with_name(f"{path.name}.{number}") for number in range(1, keep + 1)]
    for newer, target in reversed(list(itertools.pairwise(older))):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(target)
    with path.open("rb") as source, older[0].open("wb") as copy:
        source.seek(max(0, size - cap_bytes))
        shutil.copyfileobj(source, copy)
    os.truncate(path, 0)  # the writer appends, so it continues at 0
    return True
