"""How far the measurement of a service is, in words for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.api.meta import ObjectRef
from reconciler.kube.benchmarks.planning import PlannedBenchmarks


class Standing(StrEnum):
    KNOWN = "known"
    WAITING = "waiting"
    FAILED = "failed"
    NOT_MEASURED = "notMeasured"  # and will not be, as things are


@dataclass(frozen=True, slots=True)
class BenchmarkStanding:
    """The message is empty where all is known."""

    standing: Standing
    message: str = ""


def standing_of(planned: PlannedBenchmarks, ref: ObjectRef) -> BenchmarkStanding | None:
    """None: the service is not in this cluster."""
    observed, decision = planned.observed, planned.decision
    if ref in observed.skipped:
        return BenchmarkStanding(Standing.NOT_MEASURED, observed.skipped[ref])
    if ref not in observed.services:
        return None
    if not observed.is_known:
        return BenchmarkStanding(Standing.WAITING, "its pods cannot be read now")
    if ref in planned.changing:
        return BenchmarkStanding(Standing.WAITING, "it changes, or is held, first")
    keys = {need.key for need in observed.needs if need.service.ref == ref}
    if not keys:
        why = "no pod of it is ready on whole GPUs that its node's labels tell of"
        return BenchmarkStanding(Standing.NOT_MEASURED, why)
    # Services with the same key are measured once, under the name of one of them.
    same = {need.service.ref for need in observed.needs if need.key in keys}
    if any(need.key in keys for need, _ in decision.create):
        return BenchmarkStanding(Standing.WAITING, "a Job is to measure it")
    if any(result.key in keys for result, _ in decision.write):
        return BenchmarkStanding(Standing.WAITING, "its result is to be written")
    for standing, subject in (
        (Standing.WAITING, decision.waiting),
        (Standing.FAILED, decision.failed),
    ):
        if text := next((subject[each] for each in sorted(same) if each in subject), ""):
            return BenchmarkStanding(standing, text)
    return BenchmarkStanding(Standing.KNOWN)
