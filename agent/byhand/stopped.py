"""The services that a person stopped on this node, kept across restarts of whoever watches it."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from agent.state import StateDir, atomic_write, set_aside
from reconciler.api.meta import ObjectRef
from reconciler.errors import StateError

_log = logging.getLogger(__name__)


class Stopped:
    """Each with the digest of its inputs at that time: it stays stopped until they change.

    The owner of the state directory alone writes, in one thread; `read_stopped` is for others.
    """

    def __init__(self, state: StateDir) -> None:
        """Raises StateError where the notes cannot be read: who was stopped is not to start."""
        self._path = _path(state)
        self._digests = dict(_read(self._path, keep_damaged=False))

    @property
    def digests(self) -> Mapping[ObjectRef, str]:
        return MappingProxyType(self._digests)

    def add(self, digests: Mapping[ObjectRef, str]) -> None:
        """Durable on return. Raises StateError, and then nothing is noted."""
        self._write(self._digests | dict(digests))

    def release(self, refs: Iterable[ObjectRef]) -> None:
        """They may run again. Raises StateError."""
        gone = set(refs)
        self._write({ref: d for ref, d in self._digests.items() if ref not in gone})

    def keep_only(self, declared: Collection[ObjectRef]) -> None:
        """Forget what the fleet does not declare any more. Raises StateError."""
        self.release(self._digests.keys() - set(declared))

    def changed(self, inputs: Mapping[ObjectRef, str]) -> None:
        """Forget whose inputs are other ones now: going back to those is no stop. Raises
        StateError."""
        self.release(ref for ref, d in self._digests.items() if inputs.get(ref, d) != d)

    def _write(self, digests: dict[ObjectRef, str]) -> None:
        if digests == self._digests:
            return
        rows = [{"ref": list(ref), "inputsDigest": d} for ref, d in sorted(digests.items())]
        try:
            atomic_write(self._path, json.dumps(rows, indent=1).encode())
        except OSError as error:
            raise StateError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._digests = digests


def read_stopped(state: StateDir) -> Mapping[ObjectRef, str]:
    """Ref -> inputs digest; changes nothing on disk."""
    return _read(_path(state), keep_damaged=True)


def _path(state: StateDir) -> Path:
    return state.desired / "stopped.json"


def _read(path: Path, *, keep_damaged: bool) -> Mapping[ObjectRef, str]:
    try:
        rows = json.loads(path.read_bytes())
        return {_ref(row["ref"]): str(row["inputsDigest"]) for row in rows}
    except FileNotFoundError:
        return {}
    except OSError as error:
        if keep_damaged:
            return {}
        raise StateError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if not keep_damaged:
            with contextlib.suppress(OSError):
                _log.warning("%s: %s; moved to %s", path, error, set_aside(path).name)
        return {}


def _ref(words: Iterable[object]) -> ObjectRef:
    kind, namespace, name = words
    return ObjectRef(str(kind), str(namespace), str(name))
