"""What of a running loop's reports is new: a reporter says each thing once, when it changes.

No IO; one thread uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Pending
from reconciler.core.plan import Blocked, Change, ObjectName, Plan
from reconciler.core.target import Outcome, Result

ON_ITS_WAY = ("Loading", "Downloading")  # how far it is changes too often to be news


class _Step(NamedTuple):
    """What tells a change from others. `inputs`: the same service may change in the same way twice
    in one revision, since a model file may change by itself."""

    action: str
    target: str
    ref: ObjectRef
    object: ObjectName | None
    inputs: str | None

    @classmethod
    def of(cls, change: Change) -> Self:
        inputs = change.desired.inputs_digest if change.desired else None
        return cls(str(change.action), change.target, change.ref, change.object, inputs)


class News:
    """Remembers what was said. Each method takes a report and answers with what is new in it."""

    def __init__(self) -> None:
        self._revision = ""
        self._shown: set[_Step] = set()
        self._blocked: frozenset[tuple[ObjectRef, str, str]] = frozenset()
        self._states: dict[ObjectRef, tuple[bool, str, str]] = {}
        self._pending: dict[ObjectRef, tuple[str, str]] = {}
        self._undone: dict[_Step, tuple[str, str]] = {}
        self._lost = ""
        self._held = ""

    def planned(self, plan: Plan) -> bool:
        """Whether the plan is: every revision's first, one without changes too, and then whatever
        is new in it. Downloads that end bring up their change again, which is not; what was done to
        an object of a cluster and is to be done again is: someone undid it."""
        is_first = plan.revision != self._revision
        if is_first:
            self._revision = plan.revision
            self._shown.clear()
        steps = {_Step.of(change) for change in plan.changes}
        blocked = frozenset(_key(item) for item in plan.blocked)
        is_news = is_first or not steps <= self._shown or blocked != self._blocked
        self._shown = {step for step in self._shown if step.object is None} | steps
        self._blocked = blocked
        return is_news

    def applied(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        """Everything that was done, and what failed or has to wait where that is not as before: it
        comes up in each pass."""
        undone, new = {}, []
        for outcome in outcomes:
            key, state = _attempt(outcome)
            if outcome.result is not Result.APPLIED:
                undone[key] = state
            if self._undone.get(key) != state:
                new.append(outcome)
        self._undone = undone
        return tuple(new)

    def refused(self) -> None:
        """Once the revision is valid again, its plan is news even without a change."""
        self._revision = ""

    def held(self, why: str) -> bool:
        is_new, self._held = why != self._held, why
        return is_new

    def lost(self, why: str) -> bool:
        is_new, self._lost = why != self._lost, why
        return is_new

    def back(self) -> None:
        """The source answers: losing it again is news."""
        self._lost = ""

    def pending(self, instances: Iterable[Instance]) -> tuple[tuple[Instance, Pending], ...]:
        """Whose update waits for something else than before. That a download goes on is none, and
        neither is that the next try of one failed as the last did."""
        remembered, news = {}, []
        for instance in instances:
            pending = instance.pending
            if pending is None:
                continue
            before = self._pending.get(instance.ref)
            is_going = pending.reason in ON_ITS_WAY
            reason = before if is_going else (pending.reason, pending.message)
            if reason is not None:
                remembered[instance.ref] = reason
            if not is_going and reason != before:
                news.append((instance, pending))
        self._pending = remembered
        return tuple(news)

    def looked(
        self, instances: Iterable[Instance]
    ) -> tuple[tuple[Instance, ...], tuple[ObjectRef, ...]]:
        """Who became ready, stopped being so, or changed the reason; and who went away."""
        states, changed = {}, []
        for instance in instances:
            message = "" if instance.reason in ON_ITS_WAY else instance.message
            state = states[instance.ref] = (instance.ready, instance.reason, message)
            if self._states.get(instance.ref) != state:
                changed.append(instance)
        # what was on its way starts in this pass
        gone = (ref for ref, (_, reason, _) in self._states.items() if reason != "Downloading")
        left = tuple(sorted(ref for ref in gone if ref not in states))
        self._states = states
        return tuple(changed), left


def _attempt(outcome: Outcome) -> tuple[_Step, tuple[str, str]]:
    return _Step.of(outcome.change), (str(outcome.result), outcome.message)


def _key(item: Blocked) -> tuple[ObjectRef, str, str]:
    return (item.ref, item.reason, item.message)
