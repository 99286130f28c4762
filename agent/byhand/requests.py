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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.state.directory import StateDir
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.api.plain_json import parse_json
from reconciler.atomic import atomic_write

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
        atomic_write(file, text.encode())
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
    found = []
    for file in sorted(_folder(state).glob("[0-9]*.json")):
        try:
            data = parse_json(file.read_bytes())
            refs = tuple(ObjectRef(*(str(word) for word in words)) for words in data["refs"])
            if data["action"] not in (STOP, RESTART):
                raise ValueError(f"no such action: {data['action']!r}")
            found.append(ActionRequest(data["action"], refs, file))
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s: not a request: %s", file, error)
            with contextlib.suppress(OSError):
                file.unlink()
    return tuple(found)


def _folder(state: StateDir) -> Path:
    return state.root / "requests"
