"""Writes that the API server refused, and when each of them is tried again. Pure: the time is
passed in.

A quota, an admission policy or a namespace that is absent refuses the same write again, and each
attempt goes through everybody's webhooks. Kept in memory only: a new process tries at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reconciler.backoff import backoff_s
from reconciler.core.plan import Change, ObjectName
from reconciler.core.target import Outcome, Result


@dataclass(frozen=True, slots=True)
class RetryPauses:
    """After the second refusal, and the longest: each is twice as long as the one before. The first
    is followed by none: what one pass finds in the way may be gone in the next."""

    second_s: float = 1.0
    longest_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Refused:
    change: Change
    why: str
    times: int
    again_at: float


class Refusals:
    """The writes that were refused when they were tried last."""

    def __init__(self, pauses: RetryPauses = RetryPauses()) -> None:
        self._pauses = pauses
        self._refused: dict[ObjectName | None, _Refused] = {}

    def split(
        self, changes: Collection[Change], now: float
    ) -> tuple[Sequence[Change], Sequence[Outcome]]:
        """Split the changes into those that are to be tried now, and what became of the
        others when they were. A change that says something else is tried at once."""
        named = {change.object for change in changes}
        self._refused = {name: known for name, known in self._refused.items() if name in named}
        waiting = [
            Outcome(change, Result.FAILED, known.why)
            for change in changes
            if (known := self._known(change)) and now < known.again_at
        ]
        if not waiting:
            return tuple(changes), ()
        names = {outcome.change.object for outcome in waiting}
        return [change for change in changes if change.object not in names], waiting

    def refused(self, change: Change, why: str, now: float) -> None:
        """It was tried, and is not to be tried again at once."""
        known = self._known(change)
        times = known.times + 1 if known else 1
        pauses = self._pauses
        pause = backoff_s(times - 1, pauses.second_s, pauses.longest_s)
        self._refused[change.object] = _Refused(change, why, times, now + pause)

    def taken(self, change: Change) -> None:
        """It was carried out."""
        self._refused.pop(change.object, None)

    def _known(self, change: Change) -> _Refused | None:
        known = self._refused.get(change.object)
        if known is None or known.change.action is not change.action:
            return None
        return known if known.change.manifest == change.manifest else None
