"""Whether a process is still there, and one that is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def alive(pid: int) -> bool:
    """Whether it runs; one that ended and is not yet reaped does not. Its first thread may end
    before the others, which hold its ports until then."""
    try:
        process = psutil.Process(pid)
        return process.status() not in _ENDED or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


@contextmanager
def somebody_else() -> Iterator[int]:
    """A program that is not ours, as any machine has some."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()
