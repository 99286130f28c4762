"""Engine logs within their limit, and room on a disk that is full."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.api.quantity import show_bytes

LOG_CAP_BYTES = 10 * 1024 * 1024
LOG_KEEP = 3  # older files: current.log.1 is the newest
_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 64 << 10  # of a log that is cut
_CUT_MARK = b"--- fleet-reconciler cut this log: the disk was full\n"
_LARGE_BYTES = 1 << 20  # smaller files are not worth naming or cutting
_MOST_NAMED = 3
_FULL = (errno.ENOSPC, errno.EDQUOT)


def rotate(path: Path, cap_bytes: int = LOG_CAP_BYTES, keep: int = LOG_KEEP) -> bool:
    """Rotate a log over its cap: move its last `cap_bytes` to current.log.1, shift the older ones,
    and truncate it. Without room for the copy, cut it. Return True if it was over its cap. Raises
    OSError."""
    size = _size(path)
    if size < cap_bytes:
        return False
    fresh = path.with_name(f"{path.name}.new")
    older = [path.with_name(f"{path.name}.{number}") for number in range(1, keep + 1)]
    try:
        _must_have_room(path, 2 * cap_bytes)
        _copy(path, max(0, size - cap_bytes), 2 * cap_bytes, fresh)
    except OSError:
        cut(path)
        return True
    for newer, target in reversed(list(itertools.pairwise([fresh, *older]))):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(target)
    os.truncate(
        path, 0
    )  # last: a reader goes on in the copy. The writer appends, so it begins at 0
    return True


def cut(path: Path) -> None:
    """Truncate a log to its last lines, without any room and without touching the older logs.
    Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read(_TAIL_BYTES).partition(b"\n")[2]
    os.truncate(path, 0)
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        file.write(_CUT_MARK + lines)


def log_files(logs: Path) -> Iterator[Path]:
    """The current log of every service below the folder of logs."""
    return logs.glob("*/current.log")


def make_room(logs: Path) -> int:
    """Cut the large engine logs. Return the number of bytes freed."""
    freed = 0
    for path in log_files(logs):
        if (size := _size(path)) >= _LARGE_BYTES:
            with contextlib.suppress(OSError):
                cut(path)
                freed += size - _TAIL_BYTES
    return freed


def is_full(error: OSError) -> bool:
    """True if the disk, or the user's share of it, has no room left."""
    return error.errno in _FULL


@dataclass(frozen=True, slots=True)
class Removable:
    """Something large that may go, and the command that removes it."""

    what: str
    size_bytes: int
    command: str


def removable_logs(logs: Path) -> list[Removable]:
    """The engine logs. One that is written to is cut and not removed, and its size is rounded down
    to a power of two: a plan that names it must not change with each line."""
    items = []
    for path in log_files(logs):
        size = 1 << max(0, _size(path).bit_length() - 1)
        items.append(Removable("a log of over", size, f"truncate -s 0 {shlex.quote(str(path))}"))
    old = logs.glob("*/current.log.[0-9]")
    return items + [
        Removable("an old log of", _size(path), f"rm {shlex.quote(str(path))}") for path in old
    ]


def name_largest(items: list[Removable]) -> str:
    """Name the largest of these with their commands, as the end of a message; empty without one."""
    large = (item for item in items if item.size_bytes >= _LARGE_BYTES)
    largest = sorted(large, key=lambda item: item.size_bytes, reverse=True)[:_MOST_NAMED]
    named = (f"{item.what} {show_bytes(item.size_bytes)} (`{item.command}`)" for item in largest)
    return f"; the largest that may go: {', '.join(named)}" if largest else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _must_have_room(path: Path, needed: int) -> None:
    """Other writers need room as well: a copy must not take the last of it."""
    disk = os.statvfs(path.parent)
    if disk.f_bavail * disk.f_frsize < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _copy(path: Path, begin: int, most_bytes: int, target: Path) -> None:
    try:
        with path.open("rb") as source, open(_created(target), "wb") as copy:
            source.seek(begin)
            left = most_bytes  # the writer goes on meanwhile
            while left > 0 and (data := source.read(min(_CHUNK_BYTES, left))):
                copy.write(data)
                left -= len(data)
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        raise


def _created(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
