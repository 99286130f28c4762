"""What KEDA writes for a ScaledObject, where its operator is not: as version 2.21 did for ours
(tests/e2e/test_keda_real.py runs it).

Its HorizontalPodAutoscaler has all labels and annotations of the ScaledObject, ours among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.cluster import Cluster

FINALIZER = "finalizer.keda.sh"
READY = {
    "status": "True",
    "reason": "ScaledObjectReady",
    "message": "ScaledObject is defined correctly and is ready for scaling",
}
TRIGGER_ERROR = {
    "status": "False",
    "reason": "TriggerError",
    "message": "Triggers defined in ScaledObject are not working correctly",
}
_MANAGER = "keda-operator"
_NAME_LABEL = "scaledobject.keda.sh/name"


@dataclass(frozen=True, slots=True)
class Keda:
    cluster: Cluster

    def look_at(self, name: str, ready: Mapping[str, str] = READY) -> None:
        """The first time, and each time that it says something else."""
        of_it = {"labels": {_NAME_LABEL: name}, "finalizers": [FINALIZER]}
        self._patch(name, {"metadata": of_it})
        said = [
            {"type": "Ready", **ready},
            {"type": "Active", "status": "False", "reason": "ScalerNotActive", "message": "-"},
            {"type": "Paused", "status": "False"},
        ]
        status = {"conditions": said, "hpaName": f"keda-hpa-{name}", "scaleTargetKind": "-"}
        self._patch(name, {"status": status}, "--subresource=status")
        live = self.cluster.json("get", "scaledobject", name)
        words = ("apply", "--server-side", f"--field-manager={_MANAGER}", "-f", "-")
        self.cluster.kubectl(*words, text=json.dumps(_autoscaler(live)))

    def finish(self, name: str) -> None:
        """With one that is being deleted."""
        self._patch(name, {"metadata": {"finalizers": None}})

    def _patch(self, name: str, content: Mapping[str, Any], *words: str) -> None:
        merged = ("--type=merge", f"--field-manager={_MANAGER}", "-p", json.dumps(content))
        self.cluster.kubectl("patch", "scaledobject", name, *merged, *words)


def _autoscaler(live: Mapping[str, Any]) -> dict[str, Any]:
    name, metadata, spec = live["metadata"]["name"], live["metadata"], live["spec"]
    owner = {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "name": name,
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    own = {
        "app.kubernetes.io/name": f"keda-hpa-{name}",
        "app.kubernetes.io/part-of": name,
        "app.kubernetes.io/managed-by": _MANAGER,
    }
    selector = {"matchLabels": {_NAME_LABEL: name}}
    metric = {
        "metric": {"name": "s0-metric-api-value", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": "2"},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": f"keda-hpa-{name}",
            "namespace": metadata["namespace"],
            "labels": {**own, **metadata["labels"]},
            "annotations": metadata["annotations"],
            "ownerReferences": [owner],
        },
        "spec": {
            "minReplicas": max(1, spec["minReplicaCount"]),
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": metric}],
            "scaleTargetRef": spec["scaleTargetRef"],
        },
    }
