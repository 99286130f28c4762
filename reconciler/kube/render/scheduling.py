"""Which nodes pods may run on. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.vendors import GPU_RESOURCES
from reconciler.kube.render.affinity import label_terms, required
from reconciler.kube.render.labels import selector
from reconciler.kube.render.resources import asked_devices, device_name
from reconciler.kube.render.subject import Subject


def onto_pool(subject: Subject) -> dict[str, Any]:
    """The nodes of the FleetNode, but for those whose labels speak against it. A named node is
    selected by affinity: `spec.nodeName` would bypass the scheduler, which knows the free
    resources; who names it knows its hardware."""
    pool = subject.placed.workload.pool
    fields: dict[str, Any] = {}
    if pool is None:
        return fields
    if pool.node_selector:
        fields["nodeSelector"] = dict(sorted(pool.node_selector.items()))
    if pool.node_name:
        field = {"key": "metadata.name", "operator": "In", "values": [pool.node_name]}
        fields["affinity"] = required([{"matchFields": [field]}])
    elif terms := label_terms(subject):
        fields["affinity"] = required(terms)
    if keys := _taints(subject):
        fields["tolerations"] = [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys
        ]
    return fields


def spread(subject: Subject) -> dict[str, Any]:
    """Replicas on different nodes if there are enough. Always set, so that a second replica does
    not change the first one's template."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(subject.placed)},
            }
        ]
    }


def _taints(subject: Subject) -> list[str]:
    """Taints that keep other pods off nodes with devices, by vendor convention."""
    wanted = {device_name(subject) or "", *asked_devices(subject)}
    return sorted(wanted & GPU_RESOURCES)
