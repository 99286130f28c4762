"""Tokens per second as a rolling one-minute mean, from counters that only grow until they restart.
Pure."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Hashable

WINDOW_S = 60.0


class Rates:
    """A mean for each key. Unknown is None, never 0: a counter that was read once has no rate yet,
    and one that was not read for a whole window has none any more."""

    def __init__(self) -> None:
        self._samples: dict[Hashable, deque[tuple[float, float]]] = {}

    def add(self, key: Hashable, at_s: float, counter: float) -> None:
        """A reading. `at_s` is on a clock that never goes back."""
        samples = self._samples.setdefault(key, deque())
        samples.append((at_s, counter))
        # One reading at or before the edge of the window stays: the mean begins there.
        while len(samples) > 2 and samples[1][0] <= at_s - WINDOW_S:
            samples.popleft()

    def per_second(self, key: Hashable, now_s: float) -> float | None:
        """The mean over the last minute, or over as much of it as was read."""
        samples = tuple(self._samples.get(key, ()))
        if len(samples) < 2 or samples[-1][0] <= now_s - WINDOW_S:
            return None
        pairs = tuple(itertools.pairwise(samples))
        # A counter that fell restarted at 0, as in Prometheus' rate().
        grown = sum(after - (before if after >= before else 0) for (_, before), (_, after) in pairs)
        return grown / (samples[-1][0] - samples[0][0])

    def keep_only(self, keys: Collection[Hashable]) -> None:
        """Drop all other keys: their processes are gone."""
        for key in self._samples.keys() - set(keys):
            del self._samples[key]
