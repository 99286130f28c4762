"""The last observation of the loop, for HTTP: a listener that remembers.

The loop's thread writes, others read. Every field is replaced as a whole, so a reader needs no
lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.target import Result
from reconciler.http.feed import EventFeed
from reconciler.loop import Listener
from reconciler.loop.interfaces import defect_of

if TYPE_CHECKING:
    from reconciler.api.problem import Problem
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Change, Plan
    from reconciler.loop import Following, Pass
    from reconciler.loop.failure import LoopStep, StepFailure

_SLOWEST_PASS_S = 900.0  # 4,000 objects take 18 s at first; a throttled server many times that
_SLOWEST_FIRST_S = 3600.0  # git may wait half an hour for its lock, and half an hour for a clone
_LONGEST_LOSS_S = 900.0  # a git server may be away for a while: what runs is not the worse for it


Served = tuple[str, str]
"""The label of a service, and the target that it runs on; empty where that is not known."""


class FailedStep(NamedTuple):
    """What a step is about: an object, and the target that has it."""

    kind: str
    label: str
    target: str


@dataclass(frozen=True, slots=True)
class Role:
    """Whether this process applies. `holder` names who does, where another one is known."""

    leads: bool
    holder: str = ""


class Board(Listener):
    """The last of everything that a loop says."""

    def __init__(self, role: Callable[[], Role]) -> None:
        self.role = role
        self.feed = EventFeed()
        self.observed: Observation | None = None
        self.plan: Plan | None = None
        self.following: Following | None = None
        self.failing: set[FailedStep] = set()  # steps that failed when they were tried last
        self.declared: frozenset[Served] = frozenset()
        self.refusals = 0
        self.held_why = ""
        self.failures: Mapping[LoopStep, StepFailure] = {}
        self.lost_since: float | None = None  # epoch seconds; None: the source answers
        self.outcomes: Counter[tuple[str, str]] = Counter()  # (action, result) -> how often
        self.status_writes = 0
        self.event_writes = 0
        self.hooks: Counter[str] = Counter()  # what came of a forge's calls -> how often
        self.passes = 0
        self.pass_s: float | None = None
        self.passed_at: float | None = None  # epoch seconds
        self._passed_mono = time.monotonic()

    def on_planned(self, planned: Pass) -> None:
        before = self.plan
        self.plan, self.held_why = planned.plan, ""
        if before is None or before.revision != planned.plan.revision:
            self._publish("revision", state="followed", revision=planned.plan.revision)
        self.declared = frozenset(_declared(planned))
        self.failing &= {_step(change) for change in planned.plan.changes}

    def on_applied(self, done: Pass) -> None:
        for outcome in done.outcomes:
            self.outcomes[str(outcome.change.action), str(outcome.result)] += 1
            failed, step = outcome.result is Result.FAILED, _step(outcome.change)
            (self.failing.add if failed else self.failing.discard)(step)

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.refusals += 1
        self._publish("revision", state="refused", revision=revision)

    def on_held(self, why: str) -> None:
        self.held_why = why

    def on_failures(self, failures: Mapping[LoopStep, StepFailure]) -> None:
        self.failures = failures

    @property
    def defect(self) -> str:
        """The defect in which the newest revision, or the last pass, ended; empty: none."""
        return defect_of(self.following.verdict if self.following else None, self.failures)

    def on_source_lost(self, why: str, since: float) -> None:
        if self.lost_since is None:
            self._publish("source", state="lost", message=why)
        self.lost_since = since

    def on_source_back(self) -> None:
        self.lost_since = None
        self._publish("source", state="back")

    def on_observed(self, observed: Observation) -> None:
        self.observed = observed

    def on_fetched(self, following: Following) -> None:
        self.following = following

    def on_ended(self, seconds: float) -> None:
        self.passes += 1
        self.pass_s, self.passed_at, self._passed_mono = seconds, time.time(), time.monotonic()
        self._publish("pass", seconds=seconds)

    def _publish(self, kind: str, **data: object) -> None:
        self.feed.publish(kind, data)

    def since_pass_s(self) -> float:
        """Seconds since the last pass; before the first, since this board was made."""
        return time.monotonic() - self._passed_mono

    def is_alive(self) -> bool:
        """Whether the loop still passes: if not, only a restart helps."""
        return self.since_pass_s() < (_SLOWEST_PASS_S if self.passes else _SLOWEST_FIRST_S)

    def not_ready(self) -> tuple[str, ...]:
        """Why this process does not do its work; empty if it does. A standby is ready, too."""
        why = [self.defect] if self.defect else []
        if self.plan is None and not why:
            why.append(self.held_why or "no revision was followed yet")
        if self.lost_since is not None and time.time() - self.lost_since > _LONGEST_LOSS_S:
            why.append(
                f"the fleet's source has not answered for {_LONGEST_LOSS_S / 60:.0f} minutes"
            )
        if not self.is_alive():
            why.append("the loop does not pass any more")
        return tuple(why)


def _declared(planned: Pass) -> Iterator[Served]:
    """The services that should answer, also those that never came."""
    plan, desired = planned.plan, planned.desired
    placed = [w for w in desired.assignment.workloads if not w.suspended]
    yield from ((w.ref.label, w.target) for w in placed)
    there = {w.ref for w in desired.assignment.workloads}
    blocked = (b for b in plan.blocked if b.ref.kind == "InferenceService" and b.ref not in there)
    yield from ((b.ref.label, b.target or "") for b in blocked)


def _step(change: Change) -> FailedStep:
    return FailedStep(change.ref.kind, change.ref.label, change.target)
