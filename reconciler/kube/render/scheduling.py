"""Which nodes pods may be on. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.kube.render.labels import selector
from reconciler.kube.render.resources import DEVICES, asked_devices, device_name
from reconciler.kube.render.subject import Subject


def onto_pool(subject: Subject) -> dict[str, Any]:
    """The nodes of the FleetNode. A named node is asked for by affinity: `spec.nodeName` would go
    past the scheduler, and with it past what the node has left."""
    pool = subject.placed.workload.pool
    found: dict[str, Any] = {}
    if pool is None:
        return found
    if pool.node_selector:
        found["nodeSelector"] = dict(sorted(pool.node_selector.items()))
    if pool.node_name:
        field = {"key": "metadata.name", "operator": "In", "values": [pool.node_name]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        found["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    if keys := _taints(subject):
        found["tolerations"] = [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys
        ]
    return found


def spread(subject: Subject) -> dict[str, Any]:
    """Replicas on distinct nodes as far as there are enough. Always there, so that a second replica
    leaves the first one's template as it is."""
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
    """What keeps other pods off nodes with devices, by custom of the vendors."""
    wanted = {device_name(subject) or "", *asked_devices(subject)}
    return sorted(wanted & set(DEVICES.values()))
