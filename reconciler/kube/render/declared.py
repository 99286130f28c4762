"""The fleet's own documents that concern a cluster, as objects there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model, declared_name
from reconciler.kube.objects import Manifest
from reconciler.loop.desired import Desired
from reconciler.placement.pods import cluster_of


def declared(desired: Desired, cluster: str) -> tuple[Resource, ...]:
    """The Fleet, the cluster's nodes, the services on them, including held ones, and their Models;
    sorted by ref."""
    fleet = desired.fleet
    nodes = [n for n in fleet.all(FleetNode) if concerns(n, cluster)]
    services = _services(desired, frozenset(node.metadata.name for node in nodes))
    refs = {
        ObjectRef("Model", service.metadata.namespace, declared_name(name))
        for service in services
        for name in service.needed_names
    }
    models = [model for ref in refs if (model := fleet.get(Model, ref))]
    written = [node for node in nodes if node.ref in fleet.origins]  # not the cluster itself
    objects = [*fleet.all(FleetPolicy), *written, *models, *services]
    return tuple(sorted(objects, key=lambda thing: thing.ref))


def manifest_of(thing: Resource, written: Mapping[str, Any] | None = None) -> Manifest:
    """A document as its author wrote it, without our defaults, which would look stated. `written`
    is the document, where our object of it has other fields."""
    document: dict[str, Any] = thing.model_dump(mode="json", by_alias=True, exclude_unset=True)
    declared = thing.metadata
    metadata: dict[str, Any] = {"name": declared.name}
    metadata |= {"namespace": declared.namespace} if thing.namespaced else {}
    metadata |= {"labels": dict(declared.labels)} if declared.labels else {}
    metadata |= {"annotations": dict(declared.annotations)} if declared.annotations else {}
    spec = {"spec": written["spec"]} if written else {}
    return {**document, **spec, "metadata": metadata}


def concerns(node: FleetNode, cluster: str) -> bool:
    """A pool of the cluster, or a node whose services are published there."""
    agent = node.spec.agent
    return cluster_of(node) == cluster or (agent is not None and cluster in agent.clusters)


def _services(desired: Desired, nodes: frozenset[str]) -> list[InferenceService]:
    assignment = desired.assignment
    placed = {w.ref for w in assignment.workloads if w.node in nodes}
    for admission in assignment.admissions:  # also those that do not fit
        if admission.node.metadata.name in nodes:
            placed.update(candidate.service.ref for candidate in admission.asked)
    return [
        service
        for service in desired.fleet.all(InferenceService)
        if service.ref in placed or nodes.intersection(service.spec.placement.nodes)
    ]
