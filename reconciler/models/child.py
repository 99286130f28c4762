"""Ask a client library a question in a process of its own.

Such a library costs 25 MiB for an answer that is wanted once a download, keeps connections, and
sleeps where it retries. A process gives all of it back, and can be ended at once.
The question goes in and the answer comes out as JSON through pipes: neither is in any argv.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from threading import Event
from typing import Any

from reconciler.errors import DownloadFailed, ModelError

_POLL_S = 0.2
_MOST_BYTES = 1 << 30  # of addresses; a list of 2000 files takes a tenth of it


def ask(
    module: str, question: Mapping[str, Any], cancelled: Event, timeout_s: float = 60.0
) -> dict[str, Any]:
    """What `python -m module` answers. Raises DownloadFailed when it does not in time, or is to
    stop, and ModelError when it cannot run."""
    deadline = time.monotonic() + timeout_s
    # -P: nothing in the working directory can pose as a module of ours
    command = [sys.executable, "-P", "-m", module]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            told, complaint = _converse(child, json.dumps(question).encode(), cancelled, deadline)
        finally:
            child.kill()
    try:
        answer = json.loads(told)
    except ValueError:
        lines = complaint.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:300] if lines else f"exit code {child.returncode}"
        raise ModelError(f"{module} failed: {reason}") from None
    return dict(answer)


def bound_memory() -> None:
    """For the program itself: an answer without end is to end it, and not the models beside it."""
    with contextlib.suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))


def _converse(
    child: subprocess.Popen[bytes], question: bytes, cancelled: Event, deadline: float
) -> tuple[bytes, bytes]:
    pending: bytes | None = question
    while True:
        try:
            return child.communicate(pending, timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            pending = None  # it was taken with the first call
            if cancelled.is_set():
                raise DownloadFailed("stopped before the download began") from None
            if time.monotonic() >= deadline:
                raise DownloadFailed("the server gave no list of files in time") from None
