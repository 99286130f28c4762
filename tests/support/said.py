"""Listeners that keep what they hear, for tests of loops."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.api.problem import Problem
from reconciler.core.plan import Plan
from reconciler.core.target import Outcome
from reconciler.loop import Following, Listener, Pass
from reconciler.loop.desired import Desired


@dataclass
class Said(Listener):
    """Keeps what it hears."""

    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    rewrites: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    back: int = 0
    fetches: list[Following] = field(default_factory=list)

    def on_fetched(self, following: Following) -> None:
        self.fetches.append(following)

    def on_planned(self, planned: Pass) -> None:
        self.plans.append(planned.plan)

    def on_applied(self, done: Pass) -> None:
        self.outcomes += done.outcomes

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.problems += problems

    def on_held(self, why: str) -> None:
        self.holds.append(why)

    def on_rewritten(self, how: str) -> None:
        self.rewrites.append(how)

    def on_source_lost(self, why: str, since: float) -> None:
        self.lost.append(why)

    def on_source_back(self) -> None:
        self.back += 1


class Converged(Listener):
    """Keeps the revisions of which nothing was left to do."""

    def __init__(self) -> None:
        self.revisions: list[str] = []

    def on_converged(self, desired: Desired) -> None:
        self.revisions.append(desired.fleet.revision)
