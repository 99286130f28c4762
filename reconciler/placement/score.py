"""Which of several nodes is the better one for a service: one figure for each. Pure.

    tokens/s x 0.7 - utilisation x 0.2 - cost x 0.1

Each term lies between 0 and 1: tokens/s and cost as a share of the largest among the nodes that
are compared, so that no unit matters. What is not known of a node counts as the mean of what is
known of the others: it speaks neither for the node nor against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

HIGHEST = 10  # of a scheduler extender
_MIDDLE = 0.5  # of a term that is known of no node: the same for all


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """What each term counts."""

    tps: float = 0.7
    util: float = 0.2
    cost: float = 0.1

    def __str__(self) -> str:
        return ",".join(f"{each.name}={getattr(self, each.name):g}" for each in fields(self))

    @classmethod
    def read(cls, text: str) -> ScoreWeights:
        """`tps=0.7,util=0.2,cost=0.1`. Raises ValueError."""
        names = [each.name for each in fields(cls)]
        given: dict[str, float] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name not in names or not equals or name in given:
                raise ValueError(f"write each of {', '.join(names)} once, such as {cls()}")
            given[name] = _weight(name, value)
        if missing := [name for name in names if name not in given]:
            raise ValueError(
                f"{' and '.join(missing)} is missing: write all three, such as {cls()}"
            )
        if not sum(given.values()):
            raise ValueError("all are 0, so that no node would be better than another")
        return cls(**given)


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        raise ValueError(f"{name}={text}: give a number") from None
    if not 0 <= weight <= 1e6:
        raise ValueError(f"{name}={text}: give 0 or more; the formula itself takes it away")
    return weight


@dataclass(frozen=True, slots=True)
class Merits:
    """What is known of a node for one service; None: not known. `cost` is in any one currency."""

    tokens_per_second: float | None = None
    utilisation: float | None = None  # of its GPUs, 0 to 1
    cost: float | None = None


def scores(nodes: Sequence[Merits], weights: ScoreWeights) -> list[int]:
    """The score of each node, 0 to 10, in their order: 10 is the fastest of them, idle and free."""
    speeds = _shares([node.tokens_per_second for node in nodes])
    used = _filled([None if n.utilisation is None else min(n.utilisation, 1.0) for n in nodes])
    costs = _shares([node.cost for node in nodes])
    lowest, whole = weights.util + weights.cost, weights.tps + weights.util + weights.cost
    terms = zip(speeds, used, costs, strict=True)
    raw = (weights.tps * t - weights.util * u - weights.cost * c for t, u, c in terms)
    return [_rounded(HIGHEST * (value + lowest) / whole) for value in raw]


def _shares(values: Iterable[float | None]) -> list[float]:
    """Each as a share of the largest."""
    given = list(values)
    largest = max((value for value in given if value is not None), default=0.0)
    if not largest:
        return _filled(given)
    return _filled([None if value is None else value / largest for value in given])


def _filled(values: list[float | None]) -> list[float]:
    """The values, with the mean of those that are known in the place of the others."""
    known = [value for value in values if value is not None]
    mean = math.fsum(known) / len(known) if known else _MIDDLE
    return [mean if value is None else value for value in values]


def _rounded(value: float) -> int:
    """Half up, as people round. A hair below the half is the arithmetic's."""
    return min(int(value + 0.5 + 1e-9), HIGHEST)
