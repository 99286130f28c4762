"""Our programs started by a fork: what they import is there already, and their own code runs.

    done = forked.run(argv, env=env, cwd=cwd, timeout_s=60)        # as subprocess.run would

Four fifths of what a short command costs is importing. Beside each worker that needs it a server
(`fork_server.py`) has imported everything once; it forks for each command. What a fork cannot be
stays a process of its own: tests of start-up, memory, imports and pipes, and commands with a
variable that is read before their first line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PROGRAMS = {"reconcile": "reconciler.cli", "fleet-agent": "agent.cli"}
FOLDER = Path(sys.executable).parent
READY = b"r"
_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "GLIBC_", "FLEET_VALIDATOR")
_REPOSITORY = Path(__file__).parent.parent.parent


def can_run(argv: Sequence[str], changes: Iterable[str] = ()) -> bool:
    """Whether a fork is as good as a process. `changes` are the variables that a test sets."""
    program = Path(argv[0])
    is_ours = program.parent == FOLDER and program.name in PROGRAMS
    return is_ours and not any(name.startswith(_READ_AT_START) for name in changes)


def run(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run one of our programs to its end. Raises subprocess.TimeoutExpired."""
    with contextlib.ExitStack() as files:
        out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        process = start(argv, env=env, cwd=cwd, out=out, err=err)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = [_text(each) for each in (out, err)]
    return subprocess.CompletedProcess(argv, code, *said)


def start(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]
) -> Forked:
    """Start one of our programs, which writes into these files."""
    return _server(env).start(argv, env, cwd, (out, err))


class Forked:
    """What subprocess.Popen is of a process; it must be waited for, too."""

    def __init__(self, argv: Sequence[str], answers: int) -> None:
        self.args = [*argv]
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._answers = os.fdopen(answers)  # the pid at once, and the exit code when it is known
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
                self.returncode = int(self._answers.readline())
                self._answers.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with contextlib.suppress(ValueError):  # another thread has waited, too
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def end_servers() -> None:
    """At the end of a worker: nothing of it is left."""
    while _SERVERS:
        _SERVERS.popitem()[1].end()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


_SERVERS: dict[frozenset[tuple[str, str]], _Server] = {}
_STARTING = threading.Lock()


def _server(env: Mapping[str, str]) -> _Server:
    """One whose interpreter was started with these variables: the same for nearly every test."""
    at_start = frozenset((k, v) for k, v in env.items() if k.startswith(_READ_AT_START))
    with _STARTING:
        if at_start not in _SERVERS:
            _SERVERS[at_start] = _Server({**os.environ, **dict(at_start)})
        return _SERVERS[at_start]


class _Server:
    """The process that forks, as its client sees it. Any thread may ask."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                cwd=_REPOSITORY,
            )
        assert self._control.recv(1) == READY, "the server of forks has not started"

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[IO[bytes]]
    ) -> Forked:
        read, write = os.pipe()
        with tempfile.TemporaryFile("w+") as request, open(os.devnull, "rb") as nothing:
            json.dump({"argv": [*map(str, argv)], "env": dict(env), "cwd": str(cwd)}, request)
            request.flush()
            request.seek(0)
            opened: list[IO[Any]] = [nothing, *streams, request]
            files = [file.fileno() for file in opened]
            with self._lock:
                socket.send_fds(self._control, [b"1"], [*files, write])
        os.close(write)
        return Forked(argv, read)

    def end(self) -> None:
        self._control.close()
        self._process.wait()
