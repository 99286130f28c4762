"""The services that were stopped by hand on this node, kept across restarts of the agent.

With what each was started from: it may be started again without an agent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.process.launch import Launch
from agent.process.records import dump_launch, parse_launch
from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.ownfile import WRONG, glance, read_or_move

_Row = tuple[str, Launch | None, float | None]
"""The digest of its inputs, what it was started from, and since when it is stopped."""


class Stopped:
    """Each with the digest of its inputs at that time: it stays stopped until they change.

    Only the owner of the state directory writes, in one thread; other processes use `read_stopped`.
    """

    def __init__(self, state: StateDir) -> None:
        """Raises StateError if the notes cannot be read: a stopped service must not start."""
        self._state, self._path = state, _path(state)
        lost = "what was stopped by hand starts again"
        rows = read_or_move(self._path, _rows, lost=lost, keep=True) or {}
        self._digests = {ref: digest for ref, (digest, _, _) in rows.items()}
        self._launches = {ref: launch for ref, (_, launch, _) in rows.items()}
        self._since = {ref: at for ref, (_, _, at) in rows.items()}

    @property
    def digests(self) -> Mapping[ObjectRef, str]:
        return MappingProxyType(self._digests)

    @property
    def since(self) -> Mapping[ObjectRef, float]:
        """When each was stopped, in epoch seconds, where that is known."""
        return {ref: at for ref in self._digests if (at := self._since.get(ref)) is not None}

    def add(self, digests: Mapping[ObjectRef, str], launches: Mapping[ObjectRef, Launch]) -> None:
        """Durable on return; `launches` of those that had a process. Raises StateError, and then
        nothing is noted."""
        self._launches |= {ref: launches[ref] for ref in digests if ref in launches}
        self._since |= {ref: time.time() for ref in digests if ref not in self._digests}
        self._write(self._digests | dict(digests))

    def release(self, refs: Iterable[ObjectRef]) -> None:
        """They may run again. Raises StateError."""
        gone = set(refs)
        self._write({ref: d for ref, d in self._digests.items() if ref not in gone})

    def keep_only(self, declared: Collection[ObjectRef]) -> None:
        """Forget what the fleet does not declare any more. Raises StateError."""
        self.release(self._digests.keys() - set(declared))

    def changed(self, inputs: Mapping[ObjectRef, str]) -> None:
        """Forget services whose inputs have changed: going back to the old ones does not stop them
        again. Raises StateError."""
        self.release(ref for ref, d in self._digests.items() if inputs.get(ref, d) != d)

    def save(self) -> None:
        """Write them where nothing is on the disk any more. Raises StateError."""
        self._save(self._digests)

    def _write(self, digests: dict[ObjectRef, str]) -> None:
        if digests != self._digests:
            self._save(digests)

    def _save(self, digests: dict[ObjectRef, str]) -> None:
        rows = [self._row(ref, digest) for ref, digest in sorted(digests.items())]
        try:
            self._state.write(self._path, json.dumps(rows, indent=1).encode(), is_stop=True)
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._digests = digests
        self._launches = {ref: v for ref, v in self._launches.items() if ref in digests}
        self._since = {ref: v for ref, v in self._since.items() if ref in digests}

    def _row(self, ref: ObjectRef, digest: str) -> dict[str, Any]:
        launch = self._launches.get(ref)
        return {
            "ref": list(ref),
            "inputsDigest": digest,
            "launch": None if launch is None else dump_launch(launch),
            "since": self._since.get(ref),
        }


def read_stopped(state: StateDir) -> Mapping[ObjectRef, str]:
    """Ref -> inputs digest; changes nothing on disk."""
    rows = glance(_path(state), _rows) or {}
    return {ref: digest for ref, (digest, _, _) in rows.items()}


def read_stopped_since(state: StateDir) -> Mapping[ObjectRef, float]:
    """Ref -> epoch seconds, where that is known; changes nothing on disk."""
    rows = glance(_path(state), _rows) or {}
    return {ref: at for ref, (_, _, at) in rows.items() if at is not None}


def read_launches(state: StateDir) -> Mapping[ObjectRef, Launch]:
    """The launches of those that had a process; changes nothing on disk."""
    rows = glance(_path(state), _rows) or {}
    return {ref: launch for ref, (_, launch, _) in rows.items() if launch is not None}


def _path(state: StateDir) -> Path:
    return state.desired / "stopped.json"


def _rows(data: Iterable[Mapping[str, Any]]) -> Mapping[ObjectRef, _Row]:
    return {_ref(row["ref"]): (str(row["inputsDigest"]), _launch(row), _at(row)) for row in data}


def _ref(parts: Iterable[object]) -> ObjectRef:
    kind, namespace, name = parts
    return ObjectRef(str(kind), str(namespace), str(name))


def _at(row: Mapping[str, Any]) -> float | None:
    at = row.get("since")  # earlier versions noted none
    return float(at) if isinstance(at, int | float) else None


def _launch(row: Mapping[str, Any]) -> Launch | None:
    """None if there is none, or if another version of this program wrote it."""
    try:
        return parse_launch(row["launch"])
    except WRONG:
        return None
