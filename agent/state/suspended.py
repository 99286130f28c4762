"""The services that the fleet suspends on this node, on disk for when no agent runs.

It is nothing to act on: an agent reads the fleet. A disk that takes no more costs this view only.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.ownfile import glance


def read_suspended(state: StateDir) -> tuple[ObjectRef, ...]:
    """By name; none where that is not known, or damaged."""
    return glance(_path(state), _refs) or ()


def note_suspended(state: StateDir, refs: Iterable[ObjectRef]) -> None:
    """Those of the revision that is followed now."""
    now = tuple(sorted(refs))
    if now == read_suspended(state):
        return
    with contextlib.suppress(OSError):
        atomic_write(_path(state), json.dumps([list(ref) for ref in now]).encode())


def _path(state: StateDir) -> Path:
    return state.desired / "suspended.json"


def _refs(data: Iterable[Iterable[object]]) -> tuple[ObjectRef, ...]:
    return tuple(ObjectRef(*map(str, ref)) for ref in data)
