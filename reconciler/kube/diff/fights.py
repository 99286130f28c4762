"""Detects that another program and we take a field from each other again and again. Pure: the time
is passed in. Kept in memory only: a new process starts without a history."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.backoff import backoff_s
from reconciler.kube.objects import ObjectId

Key = tuple[ObjectId, str]  # an object and a field of it

_NOBODY = "another program"  # an autoscaler that scales to 0 leaves no name: Scale omits a zero


@dataclass(frozen=True, slots=True)
class FightLimits:
    """More than `most` times within `window_s` is a fight, and more than `most_slowly` within
    `slow_window_s`: a program that looks every few minutes never gets to the first. The field is
    left alone for `rest_s`, then tried once; each time the fight goes on the rest doubles, up to
    `longest_rest_s`."""

    most: int = 5
    window_s: float = 120.0
    most_slowly: int = 20
    slow_window_s: float = 6 * 3600.0
    rest_s: float = 300.0
    longest_rest_s: float = 4 * 3600.0


@dataclass(slots=True)
class _Fight:
    by: str
    taken: deque[float] = field(default_factory=deque)  # when we took it back, seconds
    rests: int = 0  # how often we have left it alone
    rests_until: float = 0.0
    message: str = ""


class Fights:
    """What was taken back, from whom and when. Used by one thread."""

    def __init__(self, limits: FightLimits = FightLimits()) -> None:
        self._limits = limits
        self._fights: dict[Key, _Fight] = {}

    def took(self, oid: ObjectId, field: str, by: str, now: float) -> None:
        """Record that we took a field back from a manager."""
        limits = self._limits
        self._forget(now)
        fight = self._fights.get((oid, field))
        if fight is None or fight.by != by:
            fight = self._fights[oid, field] = _Fight(by)
        fight.taken.append(now)
        while fight.taken[0] <= now - limits.slow_window_s:
            fight.taken.popleft()
        lately = sum(at > now - limits.window_s for at in fight.taken)
        is_fight = lately > limits.most or len(fight.taken) > limits.most_slowly
        is_tried_again = fight.rests > 0 and now - fight.rests_until < limits.window_s
        if is_fight or is_tried_again:
            self._rest(fight, oid, field, now)

    def resting(self, now: float) -> Mapping[Key, str]:
        """The fields that are left alone for now, each with a message."""
        return {
            key: fight.message for key, fight in self._fights.items() if now < fight.rests_until
        }

    def _forget(self, now: float) -> None:
        """Drop what is too long ago to be a fight."""
        limits = self._limits
        for key, fight in tuple(self._fights.items()):
            last = max(fight.rests_until, fight.taken[-1] if fight.taken else 0.0)
            if now - last > (limits.longest_rest_s if fight.rests else limits.slow_window_s):
                del self._fights[key]

    def _rest(self, fight: _Fight, oid: ObjectId, field: str, now: float) -> None:
        limits = self._limits
        if len(fight.taken) > 1:
            span = max(1, round(fight.taken[-1] - fight.taken[0]))
            who = fight.by or _NOBODY
            fight.message = (
                f"{who} and we take {field} of {oid.label} from each other:"
                f" {len(fight.taken)} times in {_span(span)}. Left as {who} wants it for now;"
                f" let only one of the two set it"
            )
        rest_s = backoff_s(fight.rests + 1, limits.rest_s, limits.longest_rest_s)
        fight.rests += 1
        fight.rests_until = now + rest_s
        fight.taken.clear()


def _span(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"
