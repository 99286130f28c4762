"""Which models the last applied revisions need, so that going back needs no download."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from reconciler.atomic import atomic_write
from reconciler.ownfile import glance, read_or_move


class KeptModels:
    """Digests by applied revision, the newest last, in one file. Used by one thread; `read_only` is
    for inspecting it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._entries = self._load()

    def note(self, revision: str, digests: Collection[str], keep: int) -> frozenset[str]:
        """Make this revision the newest of the last `keep`; returns the digests that they need.

        A revision that comes back is the newest again. OSError if the disk does not take it.
        """
        entries = [entry for entry in self._entries if entry[0] != revision]
        self._write([*entries, (revision, tuple(sorted(digests)))][-keep:])
        return self.needed()

    def add(self, revision: str, digests: Collection[str]) -> None:
        """Models of a noted revision that came since then. OSError as above."""
        came = {
            noted: tuple(sorted({*kept, *digests}) if noted == revision else kept)
            for noted, kept in self._entries
        }
        self._write(list(came.items()))

    def _write(self, entries: list[tuple[str, tuple[str, ...]]]) -> None:
        if entries == self._entries or self._read_only:
            return
        text = json.dumps([{"revision": r, "models": list(d)} for r, d in entries], indent=1)
        atomic_write(self._path, text.encode())
        self._entries = entries

    def needed(self) -> frozenset[str]:
        """The digests that the noted revisions need."""
        return frozenset(digest for _, digests in self._entries for digest in digests)

    @property
    def newest(self) -> tuple[str, tuple[str, ...]] | None:
        """The revision that was noted last, and the digests that it needs."""
        return self._entries[-1] if self._entries else None

    def beside(self, revision: str, keep: int) -> set[str]:
        """The digests that revisions before this one still need, where `keep` keep their models."""
        before = [digests for noted, digests in self._entries if noted != revision]
        return {
            digest for digests in before[max(0, len(before) - keep + 1) :] for digest in digests
        }

    def _load(self) -> list[tuple[str, tuple[str, ...]]]:
        """Without it only later revisions are known: models of older ones may be fetched again."""
        read = glance if self._read_only else read_or_move
        return read(self._path, _entries) or []


def _entries(data: Iterable[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    return [(str(e["revision"]), tuple(str(d) for d in e["models"])) for e in data]
