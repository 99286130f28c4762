"""Which service runs where: the revision decides, and nothing else. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.problem import Finding
from reconciler.workload import Workload


@dataclass(frozen=True, slots=True)
class Assignment:
    """What runs where. `blocked` names every object that stays as it runs now, and why;
    `warnings` change nothing."""

    workloads: tuple[Workload, ...]
    blocked: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
