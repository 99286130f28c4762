"""YAML files on a disk, kept between two reads of a source: an unchanged one costs a stat."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from reconciler.source.folders import Folders, Stamp, is_settled
from reconciler.source.mark import may_be_ours
from reconciler.source.tree import IGNORE_FILE, MAX_FILE_BYTES

_HEAD_BYTES = 64


class Text(NamedTuple):
    """One file. `identity` names all of its bytes; `data` is cut to its first line where it is not
    ours, as a Flux repository has many of those."""

    stamp: Stamp
    data: bytes
    identity: str


def read_text(
    folders: Folders, path: str, now: Stamp, known: Text | None, identify: Callable[[bytes], str]
) -> Text:
    """A file with this stamp; `known` is what was read before. Raises OSError."""
    if known is not None and known.stamp == now and is_settled(now):
        return known
    data = folders.read(path, MAX_FILE_BYTES + 1)
    return Text(now, data if may_be_ours(data) else data[:_HEAD_BYTES], identify(data))


def is_whole(data: bytes) -> bool:
    """Whether what was read of a file is surely all of it."""
    return _HEAD_BYTES < len(data) <= MAX_FILE_BYTES


def ignore_data(folders: Folders) -> bytes | None:
    """The `.fleetignore` at the root; None: there is none that can be read."""
    with contextlib.suppress(OSError), folders.open(IGNORE_FILE) as file:
        return file.read(MAX_FILE_BYTES)
    return None
