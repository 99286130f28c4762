"""What a process was told for what a fleet leaves open: images of services, caches of pools. Pure.

The fleet is closer and wins. What is taken is said wherever a plan is (`taken`), because another
process that was not told the same makes another plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.api.fleetnode import FleetNode, KubernetesPool
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Finding
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.memo import Memo, Same
from reconciler.placement.pods import CACHE_VARIABLE, IMAGE_VARIABLE, image_stated_by
from reconciler.runtimes import RUNTIMES

_SHOWN = 5  # objects named in a note


@dataclass(slots=True)
class WithDefaults:
    """The same fleet with `told`, values by their variables, where it states nothing.

    The same FleetNode always gives the same object, as placement.pods.InCluster does.
    """

    stated: Mapping[str, str]
    _made: Memo[ObjectRef, FleetNode] = field(default_factory=Memo)

    def __call__(self, fleet: Fleet) -> Fleet:
        folder = self.stated.get(CACHE_VARIABLE)
        made = {
            node.ref: self._made.find(
                node.ref, (Same(node),), partial(self._kept_in, folder, node, pool)
            )
            for node in fleet.all(FleetNode)
            if folder in fleet.policy.host_caches and (pool := _without_cache(node))
        }
        self._made.keep(made)
        return replace(fleet, defaults=self.stated, objects={**fleet.objects, **made})

    def _kept_in(self, folder: str | None, node: FleetNode, pool: KubernetesPool) -> FleetNode:
        cached = pool.model_copy(update={"cache": f"host:{folder}"})
        cached.model_fields_set.discard(
            "cache"
        )  # its document in a cluster stays as it was written
        return node.model_copy(update={"spec": node.spec.model_copy(update={"kubernetes": cached})})


@dataclass(frozen=True, slots=True)
class Taken:
    """A default that services, or pools, run by."""

    variable: str
    value: str
    by: tuple[ObjectRef, ...]


def taken(fleet: Fleet, workloads: Iterable[Workload]) -> tuple[Taken, ...]:
    """Which defaults of this process decide about pods of these workloads."""
    by_port: defaultdict[str, set[ObjectRef]] = defaultdict(set)
    for workload in workloads if fleet.defaults else ():
        node = fleet.get(FleetNode, ObjectRef("FleetNode", "", workload.node))
        service = fleet.get(InferenceService, workload.ref)
        if node is None or service is None or workload.pool is None:
            continue
        runtime = RUNTIMES[workload.runtime]
        if image_stated_by(service, runtime, node, fleet) == IMAGE_VARIABLE:
            by_port[IMAGE_VARIABLE].add(service.ref)
        if workload.pool.is_kept and _without_cache(node):
            by_port[CACHE_VARIABLE].add(node.ref)
    return tuple(
        Taken(variable, fleet.defaults[variable], tuple(sorted(refs)))
        for variable, refs in sorted(by_port.items())
    )


def notes(fleet: Fleet, workloads: Iterable[Workload]) -> Iterator[Finding]:
    """A note for each default that decides something, and for one that may not."""
    fields = {IMAGE_VARIABLE: "spec.image", CACHE_VARIABLE: "spec.kubernetes.cache"}
    for default in taken(fleet, workloads):
        names = ", ".join(ref.label for ref in default.by[:_SHOWN])
        names += f" and {len(default.by) - _SHOWN} more" if len(default.by) > _SHOWN else ""
        message = (
            f"{default.value} by {default.variable} of this process, as the fleet states none:"
            f" {names}"
        )
        yield Finding("DefaultTaken", default.by[0], fields[default.variable], message)
    folder = fleet.defaults.get(CACHE_VARIABLE)
    if folder is None or folder in fleet.policy.host_caches:
        return
    if pools := [node for node in fleet.all(FleetNode) if _without_cache(node)]:
        message = (
            f"{CACHE_VARIABLE} of this process, {folder}, is not heeded: the Fleet's hostCaches do"
            " not list it"
        )
        yield Finding("DefaultTaken", pools[0].ref, fields[CACHE_VARIABLE], message)


def otherwise_applied(applied: Mapping[str, str], fleet: Fleet) -> str:
    """What to say where a fleet was applied with defaults that this process was not told; empty:
    nothing."""
    used = fleet.defaults
    differing = [
        f"{variable}={value} (here: {used.get(variable, 'none')})"
        for variable, value in sorted(applied.items())
        if used.get(variable) != value
    ]
    if not differing:
        return ""
    return f"applied there with {', '.join(differing)}: give each process the same"


def _without_cache(node: FleetNode) -> KubernetesPool | None:
    """The pool of a FleetNode that does not state where its pods keep models."""
    pool = node.spec.kubernetes
    return pool if pool is not None and "cache" not in pool.model_fields_set else None
