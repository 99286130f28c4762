"""Which nodes pods may run on. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.vendors import GPU_RESOURCES
from reconciler.kube.render.affinity import label_terms, required, with_stated
from reconciler.kube.render.labels import selector
from reconciler.kube.render.resources import asked_devices, device_name
from reconciler.kube.render.subject import Subject


def onto_pool(subject: Subject) -> dict[str, Any]:
    """The nodes of the FleetNode, but for those whose labels speak against it, and what the service
    says of nodes. A named node is selected by affinity: `spec.nodeName` would bypass the scheduler,
    which knows the free resources; who names it knows its hardware."""
    pool, spec = subject.placed.workload.pool, subject.placed.service.spec
    if pool is None:
        return {}
    affinity: dict[str, Any] = {}
    if pool.node_name:
        field = {"key": "metadata.name", "operator": "In", "values": [pool.node_name]}
        affinity = required([{"matchFields": [field]}])
    elif terms := label_terms(subject):
        affinity = required(terms)
    fields = {
        "nodeSelector": dict(sorted({**spec.node_selector, **pool.node_selector}.items())),
        "affinity": with_stated(affinity, spec.affinity),
        "tolerations": _tolerations(subject),
        "runtimeClassName": spec.runtime_class_name,
    }
    return {name: value for name, value in fields.items() if value}


def spread(subject: Subject) -> dict[str, Any]:
    """Replicas on different nodes if there are enough, unless the service says how. Always set, so
    that a second replica does not change the first one's template."""
    ours = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(subject.placed)},
    }
    stated = subject.placed.service.spec.topology_spread_constraints
    return {"topologySpreadConstraints": [*stated] or [ours]}


def _tolerations(subject: Subject) -> list[dict[str, Any]]:
    ours = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _taints(subject)]
    stated = subject.placed.service.spec.tolerations
    return [*ours, *(each for each in stated if each not in ours)]


def _taints(subject: Subject) -> list[str]:
    """Taints that keep other pods off nodes with devices, by vendor convention."""
    wanted = {device_name(subject) or "", *asked_devices(subject)}
    return sorted(wanted & GPU_RESOURCES)
