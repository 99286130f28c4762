"""The two clocks that the agent reads, as something that can be passed in."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only go forward and may stand still while the machine sleeps."""

    def time(self) -> float:
        """Seconds since the epoch; may jump."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class Moment(NamedTuple):
    """One reading of both clocks: delays are measured on the first, people are shown the second."""

    monotonic: float
    wall: float
