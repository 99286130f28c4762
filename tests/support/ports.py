"""Ports that stay ours between finding and using them.

One that the system gave and that is free again may be anyone's next connection. These lie below all
that systems give out (Linux from 32768, macOS from 49152), and a lock says whose one is, to other
runs of the tests too. It goes with this process.
"""

from __future__ import annotations

import errno
import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

_FIRST, _LAST = 20_000, 27_999  # services of agents begin at 28000
_FOLDER = Path(tempfile.gettempdir()) / "fleet-test-ports"
_held: list[IO[bytes]] = []


def own_ports(count: int) -> list[int]:
    """On 127.0.0.1; nothing listens there, and nothing that is ours will but who asked."""
    _FOLDER.mkdir(exist_ok=True)
    found: list[int] = []
    for port in random.SystemRandom().sample(range(_FIRST, _LAST + 1), _LAST - _FIRST + 1):
        if len(found) == count:
            return found
        if take(port):
            found.append(port)
    raise AssertionError(f"no {count} free ports from {_FIRST} to {_LAST}")


def own_port() -> int:
    (port,) = own_ports(1)
    return port


def take(port: int) -> bool:
    """Whether it is ours from now on."""
    lock = (_FOLDER / str(port)).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.create_server(("127.0.0.1", port)):
            _held.append(lock)
            return True
    except OSError as error:
        lock.close()
        if error.errno not in (errno.EWOULDBLOCK, errno.EADDRINUSE, errno.EACCES):
            raise
        return False
