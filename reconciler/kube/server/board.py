"""The last observation of the loop, for HTTP: a reporter that also remembers.

The loop's thread writes, others read. Every field is replaced as a whole, so a reader needs no
lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.api.problem import Problem
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.core.target import Outcome
    from reconciler.loop import PlannedRevision, Reporter
    from reconciler.loop.desired import Desired

_SLOWEST_PASS_S = 900.0  # 4,000 objects take 18 s at first; a throttled server many times that
_SLOWEST_FIRST_S = 3600.0  # git may wait half an hour for its lock, and half an hour for a clone
_LONGEST_LOSS_S = 900.0  # a git server may be away for a while: what runs is not the worse for it


@dataclass(frozen=True, slots=True)
class Role:
    """Whether this process applies. `holder` names who does, where another one is known."""

    leads: bool
    holder: str = ""


class Board:
    """A Reporter that passes everything on to another one and keeps the last of each."""

    def __init__(self, to: Reporter, role: Callable[[], Role]) -> None:
        self._to = to
        self.role = role
        self.observed: Observation | None = None
        self.plan: Plan | None = None
        self.refusals = 0
        self.held_why = ""
        self.lost_since: float | None = None  # epoch seconds; None: the source answers
        self.outcomes: Counter[tuple[str, str]] = Counter()  # (action, result) -> how often
        self.status_writes = 0
        self.event_writes = 0
        self.hooks: Counter[str] = Counter()  # what came of a forge's calls -> how often
        self.passes = 0
        self.pass_s: float | None = None
        self.passed_at: float | None = None  # epoch seconds
        self._passed_mono = time.monotonic()

    # The loop's reporter.

    def planned(self, plan: Plan, desired: Desired) -> None:
        self.plan, self.held_why = plan, ""
        self._to.planned(plan, desired)

    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None:
        for outcome in outcomes:
            self.outcomes[str(outcome.change.action), str(outcome.result)] += 1
        self._to.applied(planned, outcomes)

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.refusals += 1
        self._to.refused(revision, problems)

    def held(self, why: str) -> None:
        self.held_why = why
        self._to.held(why)

    def source_lost(self, why: str, since: float) -> None:
        self.lost_since = since
        self._to.source_lost(why, since)

    def source_back(self) -> None:
        self.lost_since = None
        self._to.source_back()

    def looked(self, observed: Observation) -> None:
        self.observed = observed
        self._to.looked(observed)

    # The rest.

    def passed(self, seconds: float) -> None:
        """The loop made a pass, whether or not there was anything to do in it."""
        self.passes += 1
        self.pass_s, self.passed_at, self._passed_mono = seconds, time.time(), time.monotonic()

    def since_pass_s(self) -> float:
        """Seconds since the last pass; before the first, since this board was made."""
        return time.monotonic() - self._passed_mono

    def is_alive(self) -> bool:
        """Whether the loop still passes: if not, only a restart helps."""
        return self.since_pass_s() < (_SLOWEST_PASS_S if self.passes else _SLOWEST_FIRST_S)

    def not_ready(self) -> tuple[str, ...]:
        """Why this process does not do its work; empty if it does. A standby is ready, too."""
        why = []
        if self.plan is None:
            why.append(self.held_why or "no revision was followed yet")
        if self.lost_since is not None and time.time() - self.lost_since > _LONGEST_LOSS_S:
            why.append(
                f"the fleet's source has not answered for {_LONGEST_LOSS_S / 60:.0f} minutes"
            )
        if not self.is_alive():
            why.append("the loop does not pass any more")
        return tuple(why)
