"""Requests to a running agent: files in its state directory, one per request.

The command writes a file and wakes the agent with SIGHUP; the agent removes the file once it has
read it, and acts in that pass. A request that was not taken survives a crash.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.ownfile import read_or_move

STOP, RESTART = "stop", "restart"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """`action` is stop or restart; `file` is its path."""

    action: str
    refs: tuple[ObjectRef, ...]
    file: Path

    @property
    def taken(self) -> bool:
        """Whether an agent knows of it."""
        return not self.file.exists()

    def withdraw(self) -> bool:
        """Undo the request if no agent took it yet; False: it stays on disk."""
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)
        return not self.file.exists()


def ask(state: StateDir, action: str, refs: Iterable[ObjectRef]) -> ActionRequest:
    """Leave a request for the owner of the state directory. Raises StateError."""
    folder = _folder(state)
    file = folder / f"{time.time_ns()}-{os.getpid()}.json"
    request = ActionRequest(action, tuple(sorted(refs)), file)
    text = json.dumps({"action": action, "refs": [list(ref) for ref in request.refs]})
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state.write(file, text.encode(), is_stop=action == STOP)
    except OSError as error:
        raise StateError(f"{file}: cannot be written: {error.strerror}") from error
    return request


def wake(pid: int) -> None:
    """Have the agent read the requests. Raises StateError if it is another user's."""
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        return  # it has ended meanwhile: the caller checks who owns the directory now
    except PermissionError as error:
        raise StateError(f"pid {pid} belongs to another user: run this as that user") from error


def take(state: StateDir) -> tuple[ActionRequest, ...]:
    """All requests, the oldest first, still on disk: `withdraw` each when it is noted."""
    requests = []
    for file in sorted(_folder(state).glob("[0-9]*.json")):
        request = read_or_move(file, partial(_parse, file), lost="it was no request")
        requests += [request] if request else []
    return tuple(requests)


def _parse(file: Path, data: Mapping[str, Any]) -> ActionRequest:
    refs = tuple(ObjectRef(*(str(word) for word in parts)) for parts in data["refs"])
    if data["action"] not in (STOP, RESTART):
        raise ValueError(f"no such action: {data['action']!r}")
    return ActionRequest(data["action"], refs, file)


def _folder(state: StateDir) -> Path:
    return state.root / "requests"
