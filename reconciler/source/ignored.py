"""Fields that have no effect, reported as warnings."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.runtimes.settings import ignored_by_agents, ignored_fields
from reconciler.source.declared import DeclaredObjects
from reconciler.source.own_names import unknown_names


def without_effect(thing: Resource) -> Iterator[Finding]:
    """Fields of an object that have no effect, wherever it runs."""
    for where, why in _overruled(thing):
        yield Finding("FieldIgnored", thing.ref, where, f"{why}; remove it")
    for where, message in unknown_names(thing):
        yield Finding("FieldIgnored", thing.ref, where, message)


def ignored(declared: DeclaredObjects) -> Iterator[Finding]:
    """Fields of services that have no effect under their runtime, or on their nodes."""
    for service in declared.services:
        for where, why in _ignored_by_service(service, declared):
            yield Finding("FieldIgnored", service.ref, where, f"{why}; remove it")
    yield from _secrets_of_agents(declared)


def _secrets_of_agents(declared: DeclaredObjects) -> Iterator[Finding]:
    """Secrets of a cluster that no pod uses, because only nodes with an agent fetch the model."""
    fetched: dict[ObjectRef, bool] = {}  # by an agent only
    for service in declared.services:
        nodes = declared.stated_nodes(service)
        by_agents = bool(nodes) and all(node.spec.agent is not None for node in nodes)
        for reference in service.references:
            fetched[reference.ref] = by_agents and fetched.get(reference.ref, True)
    for ref, by_agents in fetched.items():
        model = declared.objects.get(ref)
        if by_agents and isinstance(model, Model) and model.spec.source_secret_ref is not None:
            message = (
                "it names a Secret of a cluster, and only nodes with an agent fetch this model;"
                " give the agents --hf-token-file, and remove it"
            )
            yield Finding("FieldIgnored", ref, "spec.sourceSecretRef", message)


def _overruled(thing: Resource) -> Iterator[tuple[str, str]]:
    if not thing.namespaced and "namespace" in thing.metadata.model_fields_set:
        yield "metadata.namespace", f"a {thing.kind} has no namespace"
    if isinstance(thing, Model) and thing.spec.files:
        from reconciler.models.sources import is_folder

        if not is_folder(thing.spec.source):
            yield "spec.files", "the source names one file"
    if isinstance(thing, Model) and "pvc" in (
        _scheme(thing.spec.source),
        _scheme(thing.spec.mmproj),
    ):
        for part, _, pinned in thing.parts:
            if part.spec.sha256 and _scheme(part.spec.source) == "pvc":
                yield pinned, "pods serve it where it lies on its claim, unverified"
    if isinstance(thing, Model) and thing.spec.hardware.gpu.sharding.layer_split:
        gpu = thing.spec.hardware.gpu
        at, count = "spec.hardware.gpu.sharding.layerSplit", len(gpu.sharding.layer_split)
        if not gpu.sharding.shares:
            yield at, "a range ends before it begins, and devices share by their memory"
        elif gpu.count not in (None, count):
            yield at, f"{count} ranges for count {gpu.count}, and devices share by their memory"
    if isinstance(thing, Model) and thing.spec.mmproj_sha256 and not thing.spec.mmproj:
        yield "spec.mmprojSha256", "there is no mmproj for it"
    if isinstance(thing, FleetNode) and thing.spec.kubernetes is None and thing.spec.cost_per_hour:
        yield "spec.costPerHour", "a cluster's scheduler extender alone reads it, of a pool"
    if isinstance(thing, FleetNode | InferenceService):
        memory = thing.spec.memory
        if memory.budget is not None and memory.fraction is not None:
            yield "spec.memory.fraction", "budget is set and takes precedence"


def _scheme(source: str | None) -> str:
    return (source or "").partition("://")[0]


def _ignored_by_service(
    service: InferenceService, declared: DeclaredObjects
) -> Iterator[tuple[str, str]]:
    rows = declared.runtimes_of(service)
    if len(rows) == 1:
        for where in ignored_fields(service, rows[0]):
            yield where, f"runtime {rows[0].name} does not use it"
    of_pods = ignored_by_agents(service)
    nodes = declared.stated_nodes(service) if of_pods else []
    if nodes and all(node.spec.agent is not None for node in nodes):
        for where in of_pods:
            yield where, "it has no effect on nodes with an agent"
