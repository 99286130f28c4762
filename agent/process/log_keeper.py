"""A process that keeps engine logs within their limit while no agent is there.

Engines write to their logs themselves and outlive the agent, or the command that started them. Its
owner leaves this process behind with them. It ends with the last engine, or once another owner has
the state directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.state.lock import OwnerLock
from agent.state.room import log_files, rotate

_EVERY_S = 5.0
_MODULE = "agent.process.log_keeper"


def leave_behind(root: Path, engines: Iterable[int], owner: int | None = None) -> int | None:
    """Start the process for engines that go on running; return its pid. `owner` is about to give up
    the state directory, by default this process. Without a keeper the logs only grow until the next
    agent, so a failure to start it is no error."""
    pids = map(str, (owner or os.getpid(), *engines))
    try:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(root), *pids],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    keeper.returncode = 0  # nobody waits for it, and Popen does not warn of that
    return keeper.pid


def main(argv: Sequence[str]) -> None:
    root, owner, engines = Path(argv[0]), int(argv[1]), [int(pid) for pid in argv[2:]]
    lock = OwnerLock(root)
    left = _Running(engines)
    while left.after(_EVERY_S):
        holder = lock.holder()
        if holder == owner:
            continue  # it is about to end
        if holder is not None or not root.is_dir():
            return
        with contextlib.suppress(OSError):
            _rotate_all(root / "logs")


def _rotate_all(logs: Path) -> None:
    """Rotate in turn: an earlier owner may have left such a process as well. Raises OSError."""
    folder = os.open(logs, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in log_files(logs):
            with contextlib.suppress(OSError):
                rotate(path)
    finally:
        os.close(folder)


class _Running:
    """Which of some processes run. A process descriptor also tells the end of a child that nobody
    has reaped, and of one whose pid was given to another process."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = set(pids)
        self._ends = select.poll()
        self._descriptors: set[int] = set()
        if sys.platform == "linux":
            for pid in tuple(self._pids):
                with contextlib.suppress(OSError):
                    self._descriptors.add(descriptor := os.pidfd_open(pid))
                    self._ends.register(descriptor, select.POLLIN)

    def after(self, seconds: float) -> bool:
        """True if one still runs after so long; at once, when the last one has ended."""
        if sys.platform == "linux":
            until = time.monotonic() + seconds
            while self._descriptors and (left_s := until - time.monotonic()) > 0:
                for descriptor, _ in self._ends.poll(left_s * 1000):
                    self._ends.unregister(descriptor)
                    self._descriptors.discard(descriptor)
                    os.close(descriptor)
            is_any_left = bool(self._descriptors)
        else:
            time.sleep(seconds)
            self._pids = {pid for pid in self._pids if _is_there(pid)}
            is_any_left = bool(self._pids)
        return is_any_left


def _is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
