"""Calls from outside, not more often than is good for us."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WAKES_EVERY_S = 1.0


class RateLimitedWake:
    """Wakes at once, and then at most once a second: git servers have other things to do.

    Called in the server's event loop only.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._at = float("-inf")
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        loop = asyncio.get_running_loop()
        if self._later is not None:
            return
        wait_s = self._at + _WAKES_EVERY_S - loop.time()
        if wait_s > 0:
            self._later = loop.call_later(wait_s, self._now)
        else:
            self._now()

    def _now(self) -> None:
        self._later = None
        self._at = asyncio.get_running_loop().time()
        self._wake()


class Allowance:
    """So many at once, and so many a second from then on. Used by one thread."""

    def __init__(self, burst: int, per_s: float, clock: Callable[[], float]) -> None:
        self._burst, self._per_s, self._clock = float(burst), per_s, clock
        self._left, self._at = self._burst, clock()

    def take(self) -> bool:
        """Whether there is one left; it is taken then."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """What was taken last was no use of it."""
        self._left += 1
