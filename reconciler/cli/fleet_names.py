"""The names of what the files of a folder declare, for a shell that completes a word: found by
patterns, in less time than a key may take. A name that is missed is only not offered.

Imports nothing of the kinds: these take longer than all of it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

_GROUP = b"inference.llmkube.dev/"
_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_S = 0.05
_MOST_BYTES = 1 << 20  # of a file
_COMMENT = re.compile(rb"(?:^|(?<=\s))#.*$", re.MULTILINE)
_DOCUMENT = re.compile(rb"^---", re.MULTILINE)
_KIND = re.compile(
    rb"""(?:^|[{,])[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?([A-Za-z]+)""", re.MULTILINE
)
_METADATA = re.compile(rb"""["']?metadata["']?[ \t]*:""")
# Nothing but what a name may hold: a shell is given it.
_NAME = re.compile(
    rb"""(?<![\w./-])name["']?[ \t]*:[ \t]*["']?([a-z0-9][a-z0-9.-]{0,252})(?=["'\s,}]|\Z)"""
)


def declared_names(folder: Path, within_s: float = _MOST_S) -> frozenset[tuple[str, str]]:
    """(kind, name) of each, as far as there is time."""
    until = time.monotonic() + within_s
    names: set[tuple[str, str]] = set()
    for path in _files(folder):
        if time.monotonic() > until:
            break
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES)
        except OSError:
            continue
        if _GROUP in data:
            names.update(_declared(data))
    return frozenset(names)


def _declared(data: bytes) -> Iterator[tuple[str, str]]:
    for document in _DOCUMENT.split(_COMMENT.sub(b"", data)):
        kind, metadata = _KIND.search(document), _METADATA.search(document)
        if _GROUP not in document or not kind or not metadata:
            continue
        if name := _NAME.search(document, metadata.end()):
            yield kind[1].decode(), name[1].decode()


def _files(folder: Path) -> Iterator[Path]:
    """The folder's own files first."""
    pending = [folder]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop(0)), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir():
                pending.append(Path(entry.path))
            elif entry.name.lower().endswith(_SUFFIXES):
                yield Path(entry.path)
