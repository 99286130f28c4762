"""Measured speeds in a fleet's clusters: what is known, and asking for another measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.api.meta import API_VERSION, MEASURE_AGAIN_ANNOTATION, ObjectRef
from reconciler.cli.clusters import planned_clusters
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.cli.inspection import Inspection
    from reconciler.core.plan import Plan
    from reconciler.kube.benchmarks.planning import PlannedBenchmarks
    from reconciler.kube.benchmarks.standing import BenchmarkStanding
    from reconciler.loop import Pass

_LOOK_EVERY_S = 2.0
_ASKS = "reconcile-bench"  # the field manager of what a person asks for


def speeds_in(plan: Plan) -> Mapping[str, Mapping[ObjectRef, float]]:
    """The tokens that the pods of each service write a second, as the reconciler of each cluster
    that answered says there; by target."""
    if not (clusters := planned_clusters(plan)):
        return {}
    from reconciler.kube.speeds.reported import reported_speeds

    return {name: reported_speeds(each.observed.documents) for name, each in clusters.items()}


def measured_in(plan: Plan) -> Mapping[str, PlannedBenchmarks]:
    """What is measured in each cluster that answered, by target."""
    if not (clusters := planned_clusters(plan)):
        return {}
    from reconciler.kube.benchmarks.contributor import planned_benchmarks

    return {name: planned_benchmarks(each) for name, each in clusters.items()}


def standings(plan: Plan, refs: Collection[ObjectRef]) -> dict[ObjectRef, BenchmarkStanding]:
    """How far each of these services is that some cluster has; of all, where none is named."""
    by_ref: dict[ObjectRef, BenchmarkStanding] = {}
    for each in measured_in(plan).values():
        from reconciler.kube.benchmarks.standing import standing_of

        here = {*each.observed.services, *each.observed.skipped}
        for ref in sorted(here & set(refs) if refs else here):
            if (standing := standing_of(each, ref)) is not None:
                by_ref[ref] = standing
    return by_ref


def ask_again(at: Inspection, plan: Plan, refs: Collection[ObjectRef]) -> None:
    """Annotate these services in their clusters, so that the reconciler there measures them.
    Raises UsageError for one that cannot be, ClusterError."""
    from reconciler.kube.benchmarks.standing import Standing
    from reconciler.kube.objects import document_id

    standing_by_ref = standings(plan, refs)
    for ref in refs:
        if ref not in standing_by_ref:
            raise UsageError(f"--again {ref.label}: no --cluster that answers has it")
        if standing_by_ref[ref].standing is Standing.NOT_MEASURED:
            raise UsageError(f"--again {ref.label}: {standing_by_ref[ref].message}")
    word = timestamp(time.time())
    looks = measured_in(plan)
    for cluster in at.together.clusters if at.together else ():
        here = looks[cluster.name].observed.services if cluster.name in looks else {}
        for ref in refs:
            live = cluster.api.get(document_id(ref)) if ref in here else None
            if live is None:
                continue
            metadata = {
                "name": ref.name,
                "namespace": ref.namespace,
                "uid": live["metadata"]["uid"],  # else an apply would make one that is gone
                "annotations": {MEASURE_AGAIN_ANNOTATION: word},
            }
            asked = {"apiVersion": API_VERSION, "kind": ref.kind, "metadata": metadata}
            cluster.api.apply(asked, manager=_ASKS, force=True)


def follow(
    at: Inspection, refs: Collection[ObjectRef], timeout_s: float, say: Callable[[str], None]
) -> Pass:
    """Look until each of these is measured, or will not be, or the time is over; the last look.
    `say` gets a line whenever something has changed."""
    from reconciler.kube.benchmarks.standing import Standing

    until, printed = time.monotonic() + timeout_s, ""
    while True:
        seen = at.compare()
        standing_by_ref = standings(seen.plan, refs)
        text = "; ".join(
            f"{r.label}: {s.message or s.standing}" for r, s in sorted(standing_by_ref.items())
        )
        if text != printed:
            say(text)
            printed = text
        waits = any(each.standing is Standing.WAITING for each in standing_by_ref.values())
        if not waits or time.monotonic() >= until:
            return seen
        time.sleep(_LOOK_EVERY_S)
