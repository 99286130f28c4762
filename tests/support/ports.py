"""Ports that stay ours between finding and using them.

A port that the system gave and that is free again may be anyone's next connection. These lie below
everything that systems give out (Linux from 32768, macOS from 49152) and that agents choose from
(20000 to 29999). A lock on one byte of a file says whose a port is, also to other workers and other
runs of the tests; it ends with the process.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

from tests.support.cache import cache_folder
from tests.support.wait import PATIENCE_S, wait_for

SINGLE = range(10_000, 15_000)
_ROWS = [range(first, first + 32) for first in range(15_000, 20_000 - 32, 32)]
_taken: set[int] = set()  # a process does not lock itself out


def own_port() -> int:
    (port,) = own_ports(1)
    return port


def own_ports(count: int) -> list[int]:
    """On 127.0.0.1; nothing listens there, and nothing of the tests will but who asked."""
    found = [*itertools.islice(filter(take, _shuffled(SINGLE)), count)]
    assert len(found) == count, f"no {count} free ports in {SINGLE}"
    return found


@contextmanager
def own_row() -> Iterator[range]:
    """Ports in a row, for a program that chooses among several; free again with the block."""
    for row in _shuffled(_ROWS):
        mine = [*itertools.takewhile(take, row)]
        try:
            if len(mine) == len(row):
                yield row
                return
        finally:
            for port in mine:
                _release(port)
    raise AssertionError("no row of ports is free")


@contextmanager
def fixed_port(port: int) -> Iterator[None]:
    """One that a program cannot be told to change: what else needs it waits its turn."""
    wait_for(lambda: take(port), f"port {port} is free", timeout_s=10 * PATIENCE_S)
    try:
        yield
    finally:
        _release(port)


def take(port: int) -> bool:
    """Whether it is ours from now on."""
    if port in _taken or not _locked(port):
        return False
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError as error:
        _release(port)
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        return False


def _locked(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    _taken.add(port)
    return True


def _release(port: int) -> None:
    fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, port)
    _taken.discard(port)


_file: list[BinaryIO] = []  # open for good: closing any descriptor of a file ends all locks on it


def _locks() -> BinaryIO:
    if not _file:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT
        _file.append(os.fdopen(os.open(folder / "test-ports.lock", flags, 0o644), "r+b"))
    return _file[0]


T = TypeVar("T")


def _shuffled(items: Sequence[T]) -> list[T]:
    return random.SystemRandom().sample(items, len(items))
