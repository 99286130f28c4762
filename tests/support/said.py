"""A Reporter that keeps what it is told, for tests of the loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.desired import Desired
from reconciler.plan import Observation, Plan
from reconciler.problem import Problem
from reconciler.target import Outcome


@dataclass
class Said:
    """A Reporter that keeps what it is told."""

    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    back: int = 0

    def planned(self, plan: Plan, desired: Desired) -> None:
        self.plans.append(plan)

    def applied(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes += outcomes

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.problems += problems

    def held(self, why: str) -> None:
        self.holds.append(why)

    def source_lost(self, why: str, since: float) -> None:
        self.lost.append(why)

    def source_back(self) -> None:
        self.back += 1

    def looked(self, observed: Observation) -> None:
        """Nothing to keep."""
