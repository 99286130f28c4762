"""The seam between deciding and doing: what a plan is computed against and carried out on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.api.errors import ReconcilerError
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Observation
from reconciler.core.plan import Action, Change, Plan
from reconciler.fleet.workload import Workload

REMOVALS = (Action.DELETE, Action.STOP, Action.MOVE)


class Result(StrEnum):
    APPLIED = "applied"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one change. A result is never mistaken for an intention."""

    change: Change
    result: Result
    message: str = ""


class Observer(Protocol):
    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """What runs now. `workloads` are the desired ones, so that renders can be compared.

        Never raises for a target that does not answer: that is a TargetState with reachable False.
        """


class Target(Observer, Protocol):
    def apply(self, change: Change) -> Outcome:
        """Carry out one change, or start to. Never blocks on a download or on readiness."""


def changes_to_apply(plan: Plan, *, hold_removals: bool = False) -> tuple[Change, ...]:
    """Every change of a plan that may be carried out, in its order."""
    return tuple(
        change
        for change in sorted(plan.changes, key=lambda c: c.impact.order)
        if not change.is_shown_only and not (hold_removals and change.action in REMOVALS)
    )


def apply_plan(plan: Plan, target: Target, *, hold_removals: bool = False) -> tuple[Outcome, ...]:
    """Carry out every change of a plan that may be carried out; one that fails does not stop the
    others."""
    outcomes: list[Outcome] = []
    left: set[tuple[str, ObjectRef]] = set()
    for change in changes_to_apply(plan, hold_removals=hold_removals):
        outcome = _waiting(change, left) or _applied(change, target)
        if outcome.result is Result.APPLIED:
            left.add((change.target, change.ref))
        outcomes.append(outcome)
    return tuple(outcomes)


def _waiting(change: Change, left: Collection[tuple[str, ObjectRef]]) -> Outcome | None:
    """A change whose place somebody still has. One that waits for a model of theirs is tried: its
    own may come meanwhile."""
    impact = change.impact
    stay = [ref.label for ref in impact.after if (change.target, ref) not in left]
    if not stay or impact.waits or impact.stops_for is not None:
        return None
    return Outcome(change, Result.SKIPPED, f"waits until {', '.join(stay)} has left its port")


def _applied(change: Change, target: Target) -> Outcome:
    try:
        return target.apply(change)
    except ReconcilerError as error:
        return Outcome(change, Result.FAILED, str(error))
