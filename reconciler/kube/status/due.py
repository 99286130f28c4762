"""Which statuses are written in a pass, and which wait. Pure.

While a thousand services roll out each says many times how far it is. Written each time, that is
most of what a roll-out costs, and which of them serve is known late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.api.meta import ObjectRef
from reconciler.core.plan import Plan

FEW = 20  # on their way at a time: each step of theirs is said in the pass that finds it
PATIENT_S = 0.5  # of one pass are for others: services that serve can be said in the next one again

# In a crowd, a state is said that has lasted so long: a step that is over sooner costs no write.
_STOOD_S, _STOOD_EACH_S, _LONGEST_STOOD_S = 10.0, 0.05, 60.0


@dataclass(frozen=True, slots=True)
class StatusNews:
    """A status that may say something new. `is_urgent`: whether the newest generation is served is
    news. `stood_s`: for how long its grounds have been the same."""

    ref: ObjectRef
    grounds: tuple[object, ...] | None
    is_urgent: bool
    stood_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DueStatuses:
    """What a pass writes: all that is `urgent`, and then as many as its time allows of `patient`,
    those that have stood longest first. What is left of them is for the next pass, which comes soon
    then."""

    urgent: tuple[StatusNews, ...]
    patient: tuple[StatusNews, ...]

    @classmethod
    def of(cls, news: Iterable[StatusNews]) -> DueStatuses:
        by_turn: dict[bool, list[StatusNews]] = {True: [], False: []}
        for each in news:
            by_turn[each.is_urgent].append(each)
        urgent, patient = by_turn[True], by_turn[False]
        if len(patient) > FEW:
            stood_s = stood_long_s(len(patient))
            stood = (each for each in patient if each.stood_s >= stood_s)
            patient = sorted(stood, key=lambda each: -each.stood_s)
        return cls(tuple(urgent), tuple(patient))


def takes_a_while(plan: Plan, cluster: str) -> bool:
    """Whether there is much to do to a cluster's objects."""
    target = f"cluster/{cluster}"
    return sum(c.object is not None and c.target == target for c in plan.changes) > FEW


def stood_long_s(crowd: int) -> float:
    """How many seconds a state has to last before it is said, with so many under way."""
    return min(_LONGEST_STOOD_S, max(_STOOD_S, _STOOD_EACH_S * crowd))
