"""Damages of a file, as crashes, disks, backups and people leave them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path


def _written(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    path.unlink(missing_ok=True)  # some are read-only
    path.write_bytes(data)
    path.chmod(mode)


def emptied(path: Path, _before: Path) -> None:
    _written(path, b"")


def cut(path: Path, _before: Path) -> None:
    data = path.read_bytes()
    _written(path, data[: len(data) // 2])


def noise(path: Path, _before: Path) -> None:
    _written(path, random.Random(path.name).randbytes(max(100, path.stat().st_size)))


def zeroed(path: Path, _before: Path) -> None:
    _written(path, bytes(path.stat().st_size))


def flipped(path: Path, _before: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 0x80
    _written(path, bytes(data))


def removed(path: Path, _before: Path) -> None:
    path.unlink()


def last_week(path: Path, before: Path) -> None:
    if before.exists():
        _written(path, before.read_bytes())


DAMAGES: Mapping[str, Callable[[Path, Path], None]] = {
    damage.__name__.replace("_", "-"): damage
    for damage in (emptied, cut, noise, zeroed, flipped, removed, last_week)
}
"""Each takes the file, and the same file as it was earlier (which may not exist)."""
