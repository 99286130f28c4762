"""What a loop needs of others: a journal, a reporter, and the delegate it runs for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.problem import Problem
from reconciler.core.observation import Observation, RevisionState
from reconciler.core.plan import Plan
from reconciler.core.prune import Before
from reconciler.core.target import Outcome, Target, apply_plan
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import CachedFacts, Desired, no_facts
from reconciler.source.checkout import Checkout
from reconciler.source.history import HeldHead, NotedRevision, RefusedRevision, SourceRecord
from reconciler.source.load import Loaded
from reconciler.source.verdict import ON_THE_NODE, Acceptance, HeadVerdict


@dataclass(frozen=True, slots=True)
class Following:
    """Which revision of a source is followed, and what is known of a newer one.

    `head` was fetched last, `followed` is what is applied from; `record` is what the journal has of
    the source, `rewritten` how a head that is followed all the same differs from what was applied,
    and `failed` what went wrong when the source was last read.
    """

    location: str
    ref: str
    head: str | None
    followed: str | None
    record: SourceRecord
    rewritten: str = ""
    failed: str = ""

    @property
    def refused(self) -> RefusedRevision | None:
        """The newest revision, where it has errors."""
        found = self.record.refused
        return found if found and self.head in (None, found.revision) else None

    @property
    def held(self) -> HeldHead | None:
        """The newest revision, where it is valid and not followed."""
        found = self.record.held
        return found if found and self.head in (None, found.revision) else None


class Journal(Protocol):
    """What was applied before, across our own restarts."""

    @property
    def record(self) -> SourceRecord:
        """All that it knows of its source."""

    @property
    def before(self) -> Before:
        """What the revision that was applied last has to do with removals."""

    def accept(self, checkout: Checkout, acceptance: Acceptance) -> HeadVerdict:
        """Whether this revision may follow the applied one; an older head may not until a person
        lets it in."""

    def held(self, head: str, why: str, *, waits_for_a_person: bool) -> None:
        """Why this revision is not followed; no reason: it is."""

    def lost(self, why: str) -> float:
        """The source cannot be read: since when, in epoch seconds."""

    def found(self) -> None:
        """The source answers."""

    def held_paths(self) -> frozenset[str]:
        """Files that held fleet documents in the revision that was applied last."""

    def recall(self, noted: NotedRevision, read: Callable[[Checkout], Loaded]) -> None:
        """What was followed last is this, whatever this program remembers. Raises StateError."""

    def last_good(self) -> Checkout | None:
        """The revision that was applied last, where the source still has it."""

    def begins(self, desired: Desired) -> None:
        """This revision is about to be applied, as far as it may be."""

    def applied(self, desired: Desired) -> None:
        """This revision is what the targets were made to be."""

    def refused(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        """This revision has errors."""

    def revision_state(self) -> RevisionState:
        """What was applied and what was refused, also in an earlier life of this program."""


@dataclass(frozen=True, slots=True)
class PlannedRevision:
    """A revision, what was observed, and what makes the one the other."""

    desired: Desired
    observed: Observation
    plan: Plan


class Reporter(Protocol):
    """Where the loop says what it sees. Called from the loop's thread only. `rewritten`: a head is
    followed that does not build on what was applied."""

    def planned(self, plan: Plan, desired: Desired) -> None: ...
    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None: ...
    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None: ...
    def held(self, why: str) -> None: ...
    def rewritten(self, how: str) -> None: ...
    def source_lost(self, why: str, since: float) -> None: ...
    def source_back(self) -> None: ...
    def looked(self, observed: Observation) -> None: ...


class LoopDelegate:
    """How a loop observes, plans and applies, and what else is particular to whom it runs for: a
    node, every agent, clusters. Here: one target with nothing particular. Called from the loop's
    thread only.

    `model_facts`: what is known of models that are not in the repository.
    """

    def __init__(self, target: Target, model_facts: CachedFacts = no_facts) -> None:
        self.target = target
        self.model_facts = model_facts

    def prepare(self) -> None:
        """Before anything is read or written. Raises ReconcilerError where nothing may be."""

    def on_fetched(self, following: Following) -> None:
        """The source was read, or could not be."""

    def noted(self) -> NotedRevision | None:
        """The revision of this source that was followed last, where the targets have that.
        Raises ReconcilerError: they do not answer."""
        return None

    def acceptance(self) -> Acceptance:
        """How a person lets in a head that is held."""
        return ON_THE_NODE

    def source_busy_reason(self) -> str | None:
        """Why the source is in the middle of something, so that it is not read now."""
        return None

    def hold_reason(self, fleet: Fleet, before: Before) -> str | None:
        """Why a valid revision is not followed."""
        return None

    def apply_overrides(self, fleet: Fleet) -> Fleet:
        """The fleet of a new revision with what is stated outside of it: on this machine, on the
        command line. Raises UsageError where that does not go together."""
        return fleet

    def apply_agent_overrides(self, desired: Desired) -> Desired:
        """The same revision with what the agents said when the targets were observed; the very
        object where that changes nothing."""
        return desired

    def on_revision(self, desired: Desired) -> None:
        """This is followed from now on; before its first plan."""

    def observe(self, desired: Desired) -> Observation:
        """What runs now. Never raises for a target that does not answer."""
        return self.target.observe(desired.assignment.workloads)

    def make_plan(
        self, desired: Desired, observed: Observation, confirmed: Iterable[str], before: Before
    ) -> Plan:
        """What the targets need. `confirmed`: objects that may go; `before`: what the revision that
        was applied last has to do with removals."""
        return desired.plan(observed, confirmed, before)

    def apply(self, plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]:
        """Carry out what `make_plan` made. Never raises for a change that cannot be carried out."""
        return apply_plan(plan, self.target, hold_removals=hold_removals)

    def on_converged(self, desired: Desired) -> None:
        """Nothing is left to do for this revision."""

    def on_pass(self, seconds: float) -> None:
        """A pass ended that took so long."""
