"""`reconcile` and `fleet-agent` to their end, in processes that need not import anything any more.

Importing what a command needs takes up to a second of processor time, and a run of all tests makes
hundreds of commands. One process that has imported everything forks for each: words, environment,
folder, files and exit code are the command's own. What stays (a loop, an agent) and what is
measured is started as people start it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MODULES = {"reconcile": "reconciler.cli", "fleet-agent": "agent.cli"}
_SKIPPED = ("agent.embedded", "reconciler.kube.apiserver.access")  # processes of their own
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TZ")  # what a running process has read
_REQUEST_BYTES = 1 << 20
_servers: list[tuple[socket.socket, dict[str, str]]] = []
_starting = threading.Lock()


def run(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with nothing on stdin. Raises subprocess.TimeoutExpired."""
    server = _server(env) if sys.platform == "linux" and Path(argv[0]).name in _MODULES else None
    if server is None:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=env,
            cwd=cwd,
            timeout=timeout_s,
        )
    request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": str(cwd)}).encode()
    told, tells = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            socket.send_fds(server, [request], [out.fileno(), err.fileno(), tells])
        finally:
            os.close(tells)
        with open(told, "rb", buffering=0) as pipe:
            code = _exit_code(pipe.fileno(), timeout_s)
        texts = [_text(file.fileno()) for file in (out, err)]
    if code is None:
        raise subprocess.TimeoutExpired(argv, timeout_s, *texts)
    return subprocess.CompletedProcess(argv, code, *texts)


def _server(env: Mapping[str, str]) -> socket.socket | None:
    """Who forks; None: what the environment says has to be read at a start."""
    at_start = {name: value for name, value in env.items() if name.startswith(_AT_START)}
    with _starting:
        if not _servers:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                forks = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(its.fileno())],
                    env={"PATH": env["PATH"], **at_start},
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                )
            atexit.register(_end, forks, ours)
            _servers.append((ours, at_start))
    server, had = _servers[0]
    return server if had == at_start else None


def _end(forks: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    forks.wait()


def _exit_code(told: int, timeout_s: float) -> int | None:
    """Of the command, which says its pid first. None: it took too long, and was killed."""
    deadline = time.monotonic() + timeout_s
    said = b""
    while said.count(b"\n") < 2:
        left_s = max(0.0, deadline - time.monotonic())
        if select.select([told], [], [], left_s)[0]:
            more = os.read(told, 64)
            assert more, "the process that forks, or the command's own parent, has ended"
            said += more
        elif b"\n" in said:
            with contextlib.suppress(ProcessLookupError):  # it ended just then
                os.kill(int(said.split()[0]), signal.SIGKILL)
            return None
    return int(said.split()[1])


def _text(file: int) -> str:
    size = os.fstat(file).st_size
    return os.pread(file, size, 0).decode("utf-8").replace("\r\n", "\n")


# The process that forks


def _serve(server: socket.socket) -> dict[str, Any] | None:
    """Returns in each command's process, with what it is to run; in our own at the end: None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for who waits for a command
    while True:
        request, files, _, _ = socket.recv_fds(server, _REQUEST_BYTES, 3)
        if not request:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            if _fork_told(files[2]):
                asked: dict[str, Any] = json.loads(request)
                for file, number in zip(files, (1, 2), strict=False):
                    os.dup2(file, number)
                    os.close(file)
                return asked
        for file in files:
            os.close(file)


def _fork_told(tells: int) -> bool:
    """True in the command's process; the one before it says pid and exit code, and ends."""
    pid = os.fork()
    if pid == 0:
        os.close(tells)
        return True
    os.write(tells, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(tells, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _import_all() -> None:
    for room in ("reconciler", "agent"):
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if found.name not in _SKIPPED and not found.name.endswith("__main__"):
                with contextlib.suppress(Exception):  # whoever needs it says so
                    importlib.import_module(found.name)


def _main() -> int:
    sys.path.pop(0)  # the folder we were started in
    _import_all()
    gc.collect()
    gc.freeze()  # or each command's end would go through all of it
    with socket.socket(fileno=int(sys.argv[1])) as server:
        asked = _serve(server)
    if asked is None:
        return 0
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = asked["argv"]
    program = _MODULES[Path(sys.argv[0]).name]
    return int(importlib.import_module(program).main())


if __name__ == "__main__":
    sys.exit(_main())
