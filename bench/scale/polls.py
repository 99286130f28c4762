"""When many agents ask, simulated with their own rules and a seed. Pure: no clock, no sleep."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reconciler.kube.endpoints.heartbeat import renewal_pause_s
from reconciler.loop import LoopTiming, poll_delay_s

INTERVAL_S = LoopTiming().poll_s
Pause = Callable[[float, int], float]
"""Seconds until an agent asks again, from a random share and how often it has asked."""


def poll_pause_s(share: float, polls: int) -> float:
    return poll_delay_s(INTERVAL_S, share, is_first=polls == 0)


def renewal(share: float, _: int) -> float:
    return renewal_pause_s(share)


@dataclass(frozen=True, slots=True)
class Questions:
    """The times at which agents asked, in seconds since they were started, one list each."""

    of: tuple[tuple[float, ...], ...]

    def peak(self, begin_s: float, end_s: float) -> int:
        """The most in one second of that time."""
        return max(self._each_second(begin_s, end_s).values(), default=0)

    def mean(self, begin_s: float, end_s: float) -> float:
        """A second."""
        return self._each_second(begin_s, end_s).total() / (end_s - begin_s)

    def after(self, moment_s: float) -> list[float]:
        """How long after a moment each agent asked first, sorted."""
        waits = (times[bisect_left(times, moment_s)] for times in self.of)
        return sorted(at - moment_s for at in waits)

    def _each_second(self, begin_s: float, end_s: float) -> Counter[int]:
        every = (at for times in self.of for at in times)
        return Counter(int(at) for at in every if begin_s <= at < end_s)


def simulate(
    nodes: int, pause: Pause, lasts_s: float, started_within_s: float = 1.0, seed: int = 7
) -> Questions:
    """Agents that start within some seconds, ask at once, and then as `pause` says."""
    chance = random.Random(seed)

    def times() -> Iterator[float]:
        at, asked = chance.uniform(0, started_within_s), 0
        while at < lasts_s:
            yield at
            at += pause(chance.random(), asked)
            asked += 1

    return Questions(tuple(tuple(times()) for _ in range(nodes)))
