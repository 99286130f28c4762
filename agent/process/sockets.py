"""Which process listens on a TCP port of this machine, as far as this user may see it.

Finding out means reading the links of all descriptors of a process. So it is done once for a
process; after that one link is read.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from agent.process.launch import Listening


def listening_socket(pid: int, port: int) -> Listening | None:
    """The listening socket of a port, if the process or one of its descendants owns it."""
    try:
        if listening := next(_held_by((pid,), port), None):
            return listening
        below = psutil.Process(pid).children(recursive=True)
        return next(_held_by((child.pid for child in below), port), None)
    except (psutil.Error, OSError):
        return None


if sys.platform == "linux":
    from agent.process import sock_diag

    def still_listens(known: Listening) -> bool:
        """Whether the process still has the same socket open."""
        try:
            return os.readlink(known.descriptor) == known.socket
        except OSError:
            return False

    def listener(port: int) -> int | None:
        """The pid that listens on a port; None if there is none or it is not visible."""
        return _oldest(listening.pid for listening in _held_by(psutil.pids(), port))

    def socket_of(port: int) -> str:
        """Names the sockets that listen on a port, whichever process owns them; empty if there are
        none or they are not visible. Differs for each process."""
        return " ".join(sorted(_inodes(port, sock_diag.LISTENS)))

    def connections(port: int) -> int:
        """How many connections to a listening port are open now."""
        return len(_inodes(port, sock_diag.ESTABLISHED))

    def _held_by(pids: Iterable[int], port: int) -> Iterator[Listening]:
        sockets = frozenset(f"socket:[{inode}]" for inode in _inodes(port, sock_diag.LISTENS))
        for pid in pids if sockets else ():
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    descriptor = f"/proc/{pid}/fd/{number}"
                    with contextlib.suppress(OSError):
                        if (link := os.readlink(descriptor)) in sockets:
                            yield Listening(pid, port, descriptor, link)
                            break

    def _inodes(port: int, state: int) -> list[str]:
        """Inodes of the sockets in this state with that local port."""
        try:
            return sock_diag.inodes(port, state)
        except OSError:  # a sandbox that blocks netlink
            return list(listed_inodes(port, state))

    def listed_inodes(port: int, state: int) -> Iterator[str]:
        """The same, from the kernel's text tables of all sockets."""
        ours, code = f":{port:04X}", f"{state:02X}"
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError):
                for line in Path(table).read_text().splitlines():
                    if f" {code} " in line:  # a cheap test for most lines
                        fields = line.split()
                        if fields[3] == code and fields[1].endswith(ours):
                            yield fields[9]

else:  # macOS; not exercised by the tests on Linux

    def still_listens(known: Listening) -> bool:
        """Whether the process still has the same socket open."""
        return any(_held_by((known.pid,), known.port))

    def listener(port: int) -> int | None:
        """The pid that listens on a port; None if there is none or it is not visible.

        Only root may list all connections: without that, only our user's processes are searched.
        """
        return _oldest(listening.pid for listening in _held_by(psutil.pids(), port))

    def socket_of(port: int) -> str:
        """Names the sockets that listen on a port, whichever process owns them; empty if there are
        none or they are not visible. Differs for each process."""
        return str(listener(port) or "")

    def connections(port: int) -> int | None:
        """How many connections to a listening port are open now; None if no process listens."""
        owner = listener(port)
        if owner is None:
            return None
        with contextlib.suppress(psutil.Error):
            sockets = psutil.Process(owner).net_connections(kind="tcp")
            return sum(
                1 for c in sockets if c.status == psutil.CONN_ESTABLISHED and c.laddr[1:] == (port,)
            )
        return None

    def _held_by(pids: Iterable[int], port: int) -> Iterator[Listening]:
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                for connection in psutil.Process(pid).net_connections(kind="tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
                        yield Listening(pid, port)
                        break


def _oldest(pids: Iterable[int]) -> int | None:
    """The process that opened a socket, where several share it: the rest are its workers, or a
    child between fork and exec."""
    begun: dict[int, float] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            begun[pid] = psutil.Process(pid).create_time()
    return min(begun, key=begun.__getitem__, default=None)
