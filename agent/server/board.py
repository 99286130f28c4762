"""The last observation of the loop, for HTTP: a listener that remembers.

The loop's thread writes, others read. Every field is replaced as a whole, so a reader needs no
lock, and never blocks the loop.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from reconciler.http.feed import EventFeed
from reconciler.loop import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.process.owner import Notice, Processes
    from reconciler.api.meta import ObjectRef
    from reconciler.api.problem import Problem
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.fleet.workload import Workload
    from reconciler.loop import Pass

_MOST_PROBLEMS = 100


class StateBoard(Listener):
    """The last of everything that a loop says. `processes`: those of the node."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.feed = EventFeed()
        self.observed: Observation | None = None
        self.planned: Pass | None = None
        self.plan: Plan | None = None
        self.wanted: tuple[Workload, ...] | None = None  # None: no revision yet
        self._is_lost = False  # the source
        self.followed_at: float | None = None  # epoch seconds: since when, in this run
        self.began_at = time.monotonic()
        self.speeds: Mapping[ObjectRef, float] = {}  # tokens a second, known ones only
        self.passes = 0
        self.pass_s: float | None = None  # seconds that the last pass took
        self.passed_at: float | None = None  # epoch seconds
        self.passed_mono: float | None = None
        self._pids: dict[ObjectRef, int] = {}
        self._starts: Counter[str] = Counter()
        self._noticed: Notice | None = None
        self._held: str | None = None
        self._pumping = threading.Lock()

    def on_planned(self, planned: Pass) -> None:
        plan = planned.plan
        if self.plan is None or plan.revision != self.plan.revision:
            self.followed_at, self._held = time.time(), None
            self.feed.publish("revision", {"state": "followed", "revision": plan.revision})
        if self.plan is None or plan.summary != self.plan.summary:
            self.feed.publish("plan", {"revision": plan.revision, "summary": plan.summary})
        self.wanted = planned.desired.assignment.workloads
        self.planned, self.plan = planned, plan

    def on_applied(self, done: Pass) -> None:
        for outcome in done.outcomes:
            change = outcome.change
            data = {
                "action": str(change.action),
                "service": change.ref.label,
                "reason": change.reason,
                "result": str(outcome.result),
                "message": outcome.message,
            }
            self.feed.publish("outcome", data)

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        lines = [str(problem) for problem in problems[:_MOST_PROBLEMS]]
        data = {"state": "refused", "revision": revision, "problems": lines}
        self.feed.publish("revision", data)

    def on_held(self, why: str) -> None:
        if why != self._held:  # repeated with every poll
            self.feed.publish("revision", {"state": "held", "message": why})
        self._held = why

    def on_rewritten(self, how: str) -> None:
        self.feed.publish("revision", {"state": "rewritten", "message": how})

    def on_source_lost(self, why: str, since: float) -> None:
        if not self._is_lost:
            self.feed.publish("source", {"state": "lost", "message": why, "since": since})
        self._is_lost = True

    def on_source_back(self) -> None:
        self._is_lost = False
        self.feed.publish("source", {"state": "back"})

    def on_observed(self, observed: Observation) -> None:
        self.observed = observed
        self.pump()

    def on_ended(self, seconds: float) -> None:
        self.passes += 1
        self.pass_s, self.passed_at, self.passed_mono = seconds, time.time(), time.monotonic()

    def since_pass_s(self) -> float:
        """Seconds since the last pass; before the first, since this board was created."""
        return time.monotonic() - (self.passed_mono or self.began_at)

    def starts(self) -> tuple[tuple[str, int], ...]:
        """How often a process was started, by service. Two starts within one pass count as one."""
        return tuple(self._starts.items())

    def pump(self) -> None:
        """Collect the notices of the process owner since the last call."""
        with self._pumping:
            self._count()
            new = []
            for notice in reversed(self._processes.notices()):
                if notice is self._noticed:
                    break
                new.append(notice)
            for notice in reversed(new):
                self._noticed = notice
                data = {"at": notice.at, "service": notice.ref.label, "message": notice.text}
                self.feed.publish("notice", data)

    def _count(self) -> None:
        for state in self._processes.snapshot():
            label, pid = state.ref.label, state.pid
            self._starts[label] += 0
            if pid is not None and self._pids.get(state.ref) != pid:
                self._pids[state.ref] = pid
                self._starts[label] += not state.adopted
