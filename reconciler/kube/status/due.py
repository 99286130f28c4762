"""Which statuses are written in a pass, and which wait. Pure.

While a thousand services roll out each says many times how far it is. Written each time, that is
most of what a roll-out costs, and which of them serve is known late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.api.meta import ObjectRef

FEW = 20  # on their way at a time: each step of theirs is said in the pass that finds it
STOOD_S = 10.0  # in a crowd, a state is said that has lasted so long
PATIENT_S = 0.5  # of one pass are for these: services that serve can be said in the next one again


@dataclass(frozen=True, slots=True)
class StatusNews:
    """A status that may say something new. `is_urgent`: whether the newest generation is served is
    news. `stood_s`: for how long its grounds have been the same."""

    ref: ObjectRef
    grounds: tuple[object, ...] | None
    is_urgent: bool
    stood_s: float = 0.0

    @property
    def may_wait(self) -> bool:
        """Whether it may be left to the next pass, which comes soon then."""
        return not self.is_urgent and self.stood_s >= STOOD_S


def due(news: Iterable[StatusNews]) -> tuple[StatusNews, ...]:
    """Those to write now: all that are urgent, first, and then of the others those that have stood
    longest."""
    urgent: list[StatusNews] = []
    patient: list[StatusNews] = []
    for each in news:
        (urgent if each.is_urgent else patient).append(each)
    if len(patient) > FEW:
        stood = (each for each in patient if each.stood_s >= STOOD_S)
        patient = sorted(stood, key=lambda each: -each.stood_s)
    return (*urgent, *patient)


def is_behind(news: Iterable[StatusNews], written: Iterable[StatusNews]) -> bool:
    """Whether some are left that have stood long enough: the next pass comes soon then. What has
    not is looked at again anyway."""
    return _stood(news) > _stood(written)


def _stood(news: Iterable[StatusNews]) -> int:
    return sum(each.may_wait for each in news)
