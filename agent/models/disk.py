"""The file system that models lie on: what is free there, and what running downloads still need.

What a download still needs is reserved before its first byte, so that no other takes it. A full
disk breaks more than a download: some of it stays free.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.state.room import Removable, name_largest
from reconciler.api.errors import DiskFull
from reconciler.api.quantity import show_at_least, show_bytes
from reconciler.models.partial import CHUNK

# 5 % of the disk, but no more than 10 GiB, for the system and its logs
_SHARE, _MOST_BYTES = 20, 10 << 30


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """A file system now; `keep_bytes` of what is free stay so."""

    total_bytes: int
    free_bytes: int
    keep_bytes: int


def free_space(root: Path, stated_keep: int | None) -> FreeSpace:
    """The file system of `root`, which need not be there yet. OSError where it cannot be read."""
    there = next(path for path in (root, *root.parents) if path.exists())
    usage = shutil.disk_usage(there)
    keep = min(usage.total // _SHARE, _MOST_BYTES) if stated_keep is None else stated_keep
    return FreeSpace(usage.total, usage.free, keep)


def used_bytes(path: Path) -> int:
    """What a file, or a folder with all in it, takes of its disk: blocks, as lengths may have
    holes. What vanishes meanwhile takes nothing."""
    total = _blocks(path)
    for where, _, names in os.walk(path):
        total += sum(_blocks(Path(where, name)) for name in names)
    return total


def _blocks(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


MakeRoom = Callable[[int], None]
"""Give up what nothing needs until so many bytes are freed, as far as there are."""


@dataclass(eq=False, slots=True)
class Reservations:
    """What the downloads of one store still need of its file system. Thread-safe."""

    root: Path
    stated_keep: int | None
    make_room: MakeRoom
    removable: Callable[[], list[Removable]] = list  # what a person may remove
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _missing: dict[object, tuple[str, int]] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[Callable[[int | None], None]]:
        """For one attempt to bring a model: a function that sets how many bytes of it are still to
        come, None: not known. It raises DiskFull where these, beside what others have reserved, are
        not there; what nothing needs is given up for them first."""
        key = object()
        try:
            yield lambda missing: self._set(key, name, missing)
        finally:
            with self._lock:
                self._missing.pop(key, None)

    def _set(self, key: object, name: str, missing: int | None) -> None:
        with self._lock:
            others = [each for k, each in self._missing.items() if k is not key]
            comes = CHUNK if missing is None else missing  # looked at again before the next
            taken = comes + sum(size for _, size in others)
            space = free_space(self.root, self.stated_keep)
            if (short := taken + space.keep_bytes - space.free_bytes) > 0:
                self.make_room(short)
                space = free_space(self.root, self.stated_keep)
                short = taken + space.keep_bytes - space.free_bytes
            if short > 0:
                raise DiskFull(self._arithmetic(missing, space, others, short))
            self._missing[key] = (name, missing or 0)

    def _arithmetic(
        self, missing: int | None, space: FreeSpace, others: list[tuple[str, int]], short: int
    ) -> str:
        comes = "more is" if missing is None else f"{show_bytes(missing)} are"
        reserved = "".join(
            f", and {show_bytes(size)} are reserved for {name}" for name, size in others if size
        )
        return (
            f"{comes} still to come, {show_bytes(space.free_bytes)} are free on the disk of"
            f" {self.root}, {show_bytes(space.keep_bytes)} of that stay free{reserved}: free"
            f" {show_at_least(short)} there{name_largest(self.removable())}"
        )
