"""Run a client library in a process of its own.

Such a library costs 25 MiB for a request that is needed once per download, keeps connections, and
sleeps between retries. A process returns all of it, and can be killed at once. Requests and answers
are JSON lines through pipes, so nothing is visible in argv.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import IO, Any

from reconciler.api.errors import DownloadFailed, HostUnreachable, ModelError
from reconciler.api.plain_json import parse_json
from reconciler.interpreter import python_module

_POLL_S = 0.2
_MOST_BYTES = 1 << 30  # of addresses; a list of 2000 files takes a tenth of it
_LONGEST_ANSWER = 256 << 20
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
_HARMLESS = (None, "refused")  # after them a child is as good as before


class _Kept(threading.local):
    """The children of this thread that serve more than one request; None: each serves one."""

    children: dict[str, _Child] | None = None


_kept = _Kept()


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Within this context the thread starts each program once: starting takes most of the time of a
    request."""
    _kept.children = {}
    try:
        yield
    finally:
        for child in _kept.children.values():
            child.end()
        _kept.children = None


def ask(
    module: str, question: Mapping[str, Any], cancelled: Event, timeout_s: float = 60.0
) -> dict[str, Any]:
    """The answer of `python -m module` to a request. Raises DownloadFailed if it is late or
    cancelled, ModelError if the program cannot run."""
    kept = _kept.children
    child = (kept.pop(module, None) if kept is not None else None) or _Child.start(module)
    try:
        answer = child.ask(question, cancelled, time.monotonic() + timeout_s)
        answer_fields = parse_json(answer)
        if not isinstance(answer_fields, dict):
            raise ValueError
    except ValueError:
        raise ModelError(f"{module} failed: {child.complaint()}") from None
    except BaseException:
        child.end()
        raise
    if kept is not None and answer_fields.get("error") in _HARMLESS:
        kept[module] = child
    else:
        child.end()
    return dict(answer_fields)


def failure(answer: Mapping[str, Any], text: str) -> ModelError:
    """The exception for an answer with an `error` as failure_kind names it, or `setup`: something
    that the user of this machine must do."""
    kinds: dict[str, type[ModelError]] = {"setup": ModelError, "unreachable": HostUnreachable}
    return kinds.get(answer["error"], DownloadFailed)(text)


def failure_kind(error: BaseException | None) -> str:
    """For the program itself: `unreachable` if no connection was made, else `failed`. Libraries
    wrap the error of the system, each in its own way."""
    while error is not None:
        if isinstance(error, (socket.gaierror, ConnectionRefusedError)):
            return "unreachable"
        if isinstance(error, OSError) and error.errno in _NO_ROUTE:
            return "unreachable"
        error = error.__cause__ or error.__context__
    return "failed"


def answering(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """For the program itself: answer requests until stdin ends. The memory limit makes an endless
    answer end this process, and no other."""
    with contextlib.suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(parse_json(line))) + "\n")
        sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    @classmethod
    def start(cls, module: str) -> _Child:
        command = python_module(module)
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=errors)
        return cls(process, errors)

    def ask(self, question: Mapping[str, Any], cancelled: Event, deadline: float) -> bytes:
        """The answer; incomplete if the process ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
        answer, out = bytearray(), self.process.stdout.fileno()
        while not answer.endswith(b"\n"):
            if cancelled.is_set():
                raise DownloadFailed("stopped before the download began")
            if time.monotonic() >= deadline:
                raise DownloadFailed("the server returned no list of files in time")
            if not select.select([out], [], [], _POLL_S)[0]:
                continue
            chunk = os.read(out, 1 << 16)
            answer += chunk
            if not chunk or len(answer) > _LONGEST_ANSWER:
                break
        return bytes(answer)

    def complaint(self) -> str:
        """The last line of its stderr, if it did not answer. The process has ended then."""
        self.process.kill()
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read()[-(64 << 10) :].decode(errors="replace").strip().splitlines()
        self.end()
        return lines[-1][:300] if lines else f"exit code {code}"

    def end(self) -> None:
        self.process.kill()
        with self.process, self.errors:
            pass
