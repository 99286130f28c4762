"""Who listens on a TCP port of this machine, as far as this user may see it.

Finding that out means reading the links of all of a process's descriptors. So it is done once for a
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
    """The listening socket of a port, if the process or one below it has it."""
    try:
        found = _held_by((pid,), port)
        if found is None:
            below = psutil.Process(pid).children(recursive=True)
            found = _held_by((child.pid for child in below), port)
        return found
    except (psutil.Error, OSError):
        return None


if sys.platform == "linux":
    from agent.process import sock_diag

    def still_listens(known: Listening) -> bool:
        """Whether the process still has the very socket open that proved it before."""
        try:
            return os.readlink(known.descriptor) == known.socket
        except OSError:
            return False

    def listener(port: int) -> int | None:
        """The pid that listens on a port; None where nobody does or it may not be seen."""
        found = _held_by(psutil.pids(), port)
        return None if found is None else found.pid

    def socket_of(port: int) -> str:
        """What names the sockets that listen on a port, whoever has them; empty where none do, or
        where it cannot be seen. Another process has another one."""
        return " ".join(sorted(_inodes(port, sock_diag.LISTENS)))

    def connections(port: int) -> int:
        """How many connections to a listening port are open now."""
        return len(_inodes(port, sock_diag.ESTABLISHED))

    def _held_by(pids: Iterable[int], port: int) -> Listening | None:
        sockets = frozenset(f"socket:[{inode}]" for inode in _inodes(port, sock_diag.LISTENS))
        if not sockets:
            return None
        for pid in pids:
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    descriptor = f"/proc/{pid}/fd/{number}"
                    with contextlib.suppress(OSError):
                        if (link := os.readlink(descriptor)) in sockets:
                            return Listening(pid, port, descriptor, link)
        return None

    def _inodes(port: int, state: int) -> list[str]:
        """Of the sockets in this state with that local port."""
        try:
            return sock_diag.inodes(port, state)
        except OSError:  # a sandbox that lets no question through
            return list(listed_inodes(port, state))

    def listed_inodes(port: int, state: int) -> Iterator[str]:
        """The same from the kernel's lists of all sockets."""
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
        """Whether the process still has the very socket open that proved it before."""
        return _held_by((known.pid,), known.port) is not None

    def listener(port: int) -> int | None:
        """The pid that listens on a port; None where nobody does or it may not be seen.

        Only root may list all connections: without that, our user's processes are asked.
        """
        found = _held_by(psutil.pids(), port)
        return None if found is None else found.pid

    def socket_of(port: int) -> str:
        """What names the sockets that listen on a port, whoever has them; empty where none do, or
        where it cannot be seen. Another process has another one."""
        return str(listener(port) or "")

    def connections(port: int) -> int | None:
        """How many connections to a listening port are open now; None where nobody listens."""
        owner = listener(port)
        if owner is None:
            return None
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(owner).net_connections(kind="tcp")
            return sum(
                1 for c in found if c.status == psutil.CONN_ESTABLISHED and c.laddr[1:] == (port,)
            )
        return None

    def _held_by(pids: Iterable[int], port: int) -> Listening | None:
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                for connection in psutil.Process(pid).net_connections(kind="tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
                        return Listening(pid, port)
        return None
