"""The restarts that people asked for on this node and that are not done yet, kept across restarts
of the agent: a model may have to come first, which takes longer than a pass.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.ownfile import glance, read_or_move

_log = logging.getLogger(__name__)


class Restarts:
    """Each with the process that it had then, None: none. It is done once it has another one. Only
    the owner of the state directory uses it, in one thread."""

    def __init__(self, state: StateDir) -> None:
        self._state, self._path = state, _path(state)
        self._pids = read_or_move(self._path, _parse) or {}

    @property
    def pids(self) -> Mapping[ObjectRef, int | None]:
        return MappingProxyType(self._pids)

    def ask(self, pids: Mapping[ObjectRef, int | None]) -> None:
        """Durable on return, unless the disk is full: then as long as this agent lives."""
        self._write(self._pids | dict(pids))

    def over(self, refs: Collection[ObjectRef]) -> None:
        """They are done, or nobody wants them any more."""
        self._write({ref: pid for ref, pid in self._pids.items() if ref not in refs})

    def still_meant(self, live: Mapping[ObjectRef, int | None]) -> None:
        """Forget those that have another process by now, or none: its owner starts it again."""
        self.over({r for r, pid in self._pids.items() if r not in live or live[r] != pid})

    def _write(self, pids: dict[ObjectRef, int | None]) -> None:
        if pids == self._pids:
            return
        self._pids = pids
        rows = [{"ref": list(ref), "pid": pid} for ref, pid in sorted(pids.items())]
        try:
            if rows:
                self._state.write(self._path, json.dumps(rows, indent=1).encode())
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: cannot be written: %s", self._path, error.strerror)


def read_restarts(state: StateDir) -> frozenset[ObjectRef]:
    """Those that are still to be done; changes nothing on disk."""
    return frozenset(glance(_path(state), _parse) or ())


def _path(state: StateDir) -> Path:
    return state.desired / "restarts.json"


def _parse(rows: Iterable[Mapping[str, Any]]) -> dict[ObjectRef, int | None]:
    generations = {}
    for row in rows:
        kind, namespace, name = row["ref"]
        pid = row["pid"]
        ref = ObjectRef(str(kind), str(namespace), str(name))
        generations[ref] = None if pid is None else int(pid)
    return generations
