"""From one look at a cluster to what its measurements need, as changes of the plan. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import assert_never

from reconciler.api.benchmark import BenchmarkResult
from reconciler.api.meta import ObjectRef
from reconciler.core.comparison import Causes
from reconciler.core.plan import Action, Change
from reconciler.kube.benchmarks.deciding import (
    BenchmarkDecision,
    JobAttempt,
    NeededBenchmark,
    decide,
)
from reconciler.kube.benchmarks.objects import benchmark_job, result_config_map
from reconciler.kube.benchmarks.observer import BenchmarkObservation
from reconciler.kube.benchmarks.starting import brought
from reconciler.kube.benchmarks.subjects import ServingPod
from reconciler.kube.benchmarks.unserved import UnservedClass
from reconciler.kube.diff.step import ObjectStep
from reconciler.kube.inventory import labelled
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId, id_of, ref_of, service_of
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL


@dataclass(frozen=True, slots=True)
class PlannedBenchmarks:
    """What to do, as `changes`, and why: the decision and what it was made from. `changing` are
    services that wait for their own changes."""

    observed: BenchmarkObservation = field(default_factory=BenchmarkObservation)
    decision: BenchmarkDecision = field(default_factory=BenchmarkDecision)
    changes: tuple[Change, ...] = ()
    changing: frozenset[ObjectRef] = frozenset()


def plan_benchmarks(
    seen: BenchmarkObservation,
    live: ObjectSet,
    *,
    target: str,
    fleet: str,
    now: float,
    changing: Collection[ObjectRef],
    may_remove: bool,
    causes: Causes,
) -> PlannedBenchmarks:
    """`changing`: services of which something changes or is held; they are measured afterwards,
    and what is there of them stays. `may_remove`: absence of a service means that it is gone."""
    if not seen.is_known:
        return PlannedBenchmarks(seen)
    decision = decide(
        (need for need in seen.needs if need.service.ref not in changing),
        seen.evidence,
        seen.attempts,
        services=seen.services,
        served=seen.served,
        now=now,
    )
    steps = _Steps(target, fleet, causes, live)
    changes = [steps.job(need, attempt) for need, attempt in decision.create]
    changes += [
        steps.result(result, attempt)
        for result, attempt in decision.write
        # An object of that name that goes has to be gone first.
        if id_of(result_config_map(result, attempt, {})) not in decision.remove
    ]
    for oid, why in decision.remove.items():
        if may_remove and live.ref(oid) not in changing:
            changes.append(steps.removal(oid, why))
    return PlannedBenchmarks(seen, decision, tuple(changes), frozenset(changing))


@dataclass(frozen=True, slots=True)
class _Steps:
    """Changes of objects in one cluster."""

    target: str
    fleet: str
    causes: Causes
    live: ObjectSet

    def job(self, need: NeededBenchmark, attempt: int) -> Change:
        made = labelled(benchmark_job(need, attempt), self.fleet)
        what = f"measures {need.service.model} on {need.key.device}"
        message = f"{what}: {_effect(need)}"
        step = self._step(id_of(made), need.service.ref)
        return step.change(Action.CREATE, "NotMeasured", manifest=made, message=message)

    def result(self, result: BenchmarkResult, attempt: JobAttempt) -> Change:
        named = {COMPONENT_LABEL: BENCHMARK}
        made = labelled(result_config_map(result, attempt, named), self.fleet, attempt.service.name)
        speed = result.tokens_per_second or 0.0
        message = f"{result.model} on {result.key.device}: {speed:.1f} tokens/s"
        oid = id_of(made)
        action = Action.UPDATE if oid in self.live else Action.CREATE
        return self._step(oid, attempt.service).change(
            action, "Measured", manifest=made, message=message
        )

    def removal(self, oid: ObjectId, why: str) -> Change:
        have = self.live[oid]
        kept = ("name", "namespace", "uid", "labels")
        metadata = {key: have["metadata"][key] for key in kept if key in have["metadata"]}
        made = {"apiVersion": have["apiVersion"], "kind": have["kind"], "metadata": metadata}
        step = self._step(oid, service_of(have) or ref_of(oid))
        return step.change(Action.DELETE, "Removed", manifest=made, message=why)

    def _step(self, oid: ObjectId, ref: ObjectRef) -> ObjectStep:
        return ObjectStep(self.target, oid, ref, self.causes.where(ref))


def _effect(need: NeededBenchmark) -> str:
    """What a measurement takes of others, for people."""
    match need.place:
        case ServingPod(name=name):
            return f"it asks pod {name} for some seconds, and clients wait behind it"
        case UnservedClass():
            fetched = brought(need.service.placed)
            return (
                f"none of its pods is on such a node, so it fetches {fetched} and starts the engine"
                f" there, on a GPU that is free (spec.benchmark.everyClass)"
            )
        case _ as never:
            assert_never(never)
