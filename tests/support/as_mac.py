"""A Mac, as far as Python code can tell, on Linux: `import tests.support.as_mac` before ours.

Our own branches for macOS ask psutil, which knows Linux as well, and kqueue, which is made of
pidfds here. It has what misleads: no zombie can be watched, an end is told once, and for the pids
in `early` while the process still lives. On a Mac this changes nothing.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - what looks at the platform when it is imported, before it changes
import errno
import os
import select
import sys
import sysconfig
import urllib.request  # noqa: F401
import uuid  # noqa: F401
import zoneinfo  # noqa: F401
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # noqa: F401

early: set[int] = set()
_PROCESS = -5  # KQ_FILTER_PROC


@dataclass(frozen=True)
class Kevent:
    ident: int
    filter: int
    flags: int = 0
    fflags: int = 0


class Kqueue:
    """EVFILT_READ, and NOTE_EXIT of EVFILT_PROC."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._events: dict[int, Kevent] = {}  # by descriptor

    def control(
        self, changes: Iterable[Kevent] | None, most: int, timeout: float | None = None
    ) -> list[Kevent]:
        for change in changes or ():
            self._add(change)
        told = [e for e in self._events.values() if e.ident in early] if most else []
        if most and not told:
            ready = self._poll.poll(None if timeout is None else int(timeout * 1000 + 0.999))
            told = [self._events[descriptor] for descriptor, _ in ready]
        for event in told:
            if event.filter == _PROCESS:
                self._forget(event)
        return told

    def close(self) -> None:
        for event in [*self._events.values()]:
            if event.filter == _PROCESS:
                self._forget(event)

    def _add(self, event: Kevent) -> None:
        descriptor = event.ident
        if event.filter == _PROCESS:
            if _is_zombie(event.ident):
                raise ProcessLookupError(errno.ESRCH, "a zombie")
            descriptor = os.pidfd_open(event.ident)
        self._poll.register(descriptor, select.POLLIN)
        self._events[descriptor] = event

    def _forget(self, event: Kevent) -> None:
        (descriptor,) = [d for d, e in self._events.items() if e is event]
        self._poll.unregister(descriptor)
        del self._events[descriptor]
        os.close(descriptor)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _become_a_mac() -> None:
    sysconfig.get_config_vars()  # read from a file that is named by the platform
    names: dict[str, Any] = {
        "kqueue": Kqueue,
        "kevent": Kevent,
        "KQ_FILTER_READ": -1,
        "KQ_FILTER_PROC": _PROCESS,
        "KQ_EV_ADD": 1,
        "KQ_NOTE_EXIT": 0x80000000,
    }
    for name, value in names.items():
        setattr(select, name, value)
    sys.platform = "darwin"


if sys.platform != "darwin":
    _become_a_mac()
