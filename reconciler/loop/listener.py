"""Who hears what a loop sees and does: consoles, boards, statuses, whoever comes next.

A loop has any number of listeners. None knows of another, none decides anything, and their order
means nothing; each overrides what it wants to hear. All are called from the loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.api.problem import Problem
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.core.target import Outcome
from reconciler.loop.desired import Desired
from reconciler.loop.failure import LoopStep, StepFailure
from reconciler.loop.interfaces import Following


@dataclass(frozen=True, slots=True)
class Pass:
    """One comparison of the targets with what is followed. `outcomes` are of the changes that were
    tried: none before it is applied."""

    desired: Desired
    observed: Observation
    plan: Plan
    outcomes: tuple[Outcome, ...] = ()


class Listener:
    """Hears nothing."""

    def on_fetched(self, following: Following) -> None:
        """The source was read, or could not be."""

    def on_source_lost(self, why: str, since: float) -> None:
        """The source cannot be read; `since` in epoch seconds. Again with every fetch."""

    def on_source_back(self) -> None:
        """The source answers again."""

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        """The newest revision has errors."""

    def on_held(self, why: str) -> None:
        """The newest revision is not followed, or a pass ended early. Again with every fetch."""

    def on_failures(self, failures: Mapping[LoopStep, StepFailure]) -> None:
        """Other steps fail than before, or for other reasons; none: all succeed."""

    def on_rewritten(self, how: str) -> None:
        """A head is followed that does not build on what was applied."""

    def on_followed(self, desired: Desired) -> None:
        """This is followed from now on; before its first plan."""

    def on_observed(self, observed: Observation) -> None:
        """The targets were observed."""

    def on_planned(self, planned: Pass) -> None:
        """A plan was made, and is about to be applied."""

    def on_applied(self, done: Pass) -> None:
        """All that could be done of the plan is done."""

    def on_converged(self, desired: Desired) -> None:
        """Nothing is left to do for this revision: once for each, and for each change of its model
        files."""

    def on_ended(self, seconds: float) -> None:
        """A pass ended that took so long, whether or not there was anything to do."""


class Listeners(Listener):
    """All of a loop's listeners as one."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._all = [*listeners]

    def add(self, listener: Listener) -> None:
        """It hears what happens from now on."""
        self._all.append(listener)

    def on_fetched(self, following: Following) -> None:
        for each in self._all:
            each.on_fetched(following)

    def on_source_lost(self, why: str, since: float) -> None:
        for each in self._all:
            each.on_source_lost(why, since)

    def on_source_back(self) -> None:
        for each in self._all:
            each.on_source_back()

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        for each in self._all:
            each.on_refused(revision, problems)

    def on_held(self, why: str) -> None:
        for each in self._all:
            each.on_held(why)

    def on_failures(self, failures: Mapping[LoopStep, StepFailure]) -> None:
        for each in self._all:
            each.on_failures(failures)

    def on_rewritten(self, how: str) -> None:
        for each in self._all:
            each.on_rewritten(how)

    def on_followed(self, desired: Desired) -> None:
        for each in self._all:
            each.on_followed(desired)

    def on_observed(self, observed: Observation) -> None:
        for each in self._all:
            each.on_observed(observed)

    def on_planned(self, planned: Pass) -> None:
        for each in self._all:
            each.on_planned(planned)

    def on_applied(self, done: Pass) -> None:
        for each in self._all:
            each.on_applied(done)

    def on_converged(self, desired: Desired) -> None:
        for each in self._all:
            each.on_converged(desired)

    def on_ended(self, seconds: float) -> None:
        for each in self._all:
            each.on_ended(seconds)
