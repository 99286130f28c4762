"""Who keep what a loop tells them, for its tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.api.problem import Problem
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.core.target import Outcome, Target
from reconciler.loop import LoopDelegate, PlannedRevision
from reconciler.loop.desired import Desired


@dataclass
class Said:
    """A Reporter that keeps what it is told."""

    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    rewrites: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    back: int = 0

    def planned(self, plan: Plan, desired: Desired) -> None:
        self.plans.append(plan)

    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes += outcomes

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.problems += problems

    def held(self, why: str) -> None:
        self.holds.append(why)

    def rewritten(self, how: str) -> None:
        self.rewrites.append(how)

    def source_lost(self, why: str, since: float) -> None:
        self.lost.append(why)

    def source_back(self) -> None:
        self.back += 1

    def looked(self, observed: Observation) -> None:
        """Nothing to keep."""


class Converged(LoopDelegate):
    """Keeps the revisions of which nothing was left to do."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.revisions: list[str] = []

    def on_converged(self, desired: Desired) -> None:
        self.revisions.append(desired.fleet.revision)
