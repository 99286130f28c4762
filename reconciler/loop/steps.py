"""What a pass does, and which revision it may follow: values that each program fills in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.core.prune import Before
from reconciler.core.target import Outcome, Target, apply_plan
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import CachedFacts, Desired, no_facts
from reconciler.source.history import NotedRevision
from reconciler.source.verdict import ON_THE_NODE, Acceptance

MakePlan = Callable[[Desired, Observation, Iterable[str], Before], Plan]
"""What the targets need, with the objects that may go although the fleet's limits ask for a
confirmation, and what the revision that was applied last has to do with removals."""


class ApplyPlan(Protocol):
    """Carry out what was planned. Never raises for a change that cannot be carried out."""

    def __call__(self, plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]: ...


def _nothing() -> None:
    return None


def _no_hold(_fleet: Fleet, _before: Before) -> None:
    return None


def _same(fleet: Fleet) -> Fleet:
    return fleet


def _same_revision(desired: Desired) -> Desired:
    return desired


def _no_step(_desired: Desired) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Gate:
    """Which revision may be followed, as far as that is decided outside of the repository.

    - `busy_reason`: why the source is in the middle of something, so that it is not read now.
    - `noted`: the revision of this source that was followed last, where the targets have that.
      Raises ReconcilerError: they do not answer.
    - `acceptance`: how a person lets in a head that is held.
    - `hold_reason`: why a valid revision is not followed.
    """

    busy_reason: Callable[[], str | None] = _nothing
    noted: Callable[[], NotedRevision | None] = _nothing
    acceptance: Callable[[], Acceptance] = lambda: ON_THE_NODE
    hold_reason: Callable[[Fleet, Before], str | None] = _no_hold


@dataclass(frozen=True, slots=True)
class Steps:
    """What a pass does, for whom a loop runs: a node, every agent, clusters. Called from the loop's
    thread, in this order:

    - `prepare`: before anything is read or written. Raises ReconcilerError where nothing may be.
    - `overlay`: the fleet of a new revision with what is stated outside of it, on this machine or
      on the command line. Raises UsageError where that does not go together.
    - `follow`: this revision is about to be followed; before its first plan. Raises ReconcilerError
      where that cannot be: it comes again with the next fetch.
    - `observe`: what runs now. Never raises for a target that does not answer.
    - `agent_overlay`: the same revision with what the agents stated when they were observed; the
      very object where that changes nothing.
    - `plan` and `apply`.

    `facts`: what is known of models that are not in the repository.
    """

    observe: Callable[[Desired], Observation]
    apply: ApplyPlan
    plan: MakePlan = Desired.plan
    facts: CachedFacts = no_facts
    prepare: Callable[[], None] = _nothing
    overlay: Callable[[Fleet], Fleet] = _same
    follow: Callable[[Desired], None] = _no_step
    agent_overlay: Callable[[Desired], Desired] = _same_revision
    gate: Gate = Gate()


def steps_of(target: Target, facts: CachedFacts = no_facts) -> Steps:
    """The steps of one target with nothing particular."""

    def observe(desired: Desired) -> Observation:
        return target.observe(desired.assignment.workloads)

    def apply(plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]:
        return apply_plan(plan, target, hold_removals=hold_removals)

    return Steps(observe, apply, facts=facts)
