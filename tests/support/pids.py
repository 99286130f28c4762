"""Whether a process is still there."""

from __future__ import annotations

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
