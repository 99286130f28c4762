"""The seam between deciding and doing: what a plan is computed against and carried out on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.plan import Change, Observation
from reconciler.workload import Workload


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
