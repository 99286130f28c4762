"""The HorizontalPodAutoscaler: whole pods of one service, never single models of a router. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.service_parts import Metric
from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata
from reconciler.kube.render.quantity import canonical
from reconciler.kube.render.subject import Subject
from reconciler.runtimes import RUNTIMES

# If the fleet names no metric: the requests in flight per pod. An adapter must serve the engine's
# metrics to the cluster; CPU, the default of Kubernetes, tells little about a device's load.
_REQUESTS_EACH = 2


def autoscalers(subject: Subject) -> tuple[Manifest, ...]:
    """None for a suspended service: there is nothing to scale."""
    scaling = subject.placed.service.spec.autoscaling
    if scaling is None or subject.placed.workload.suspended:
        return ()
    metrics = [_metric(metric) for metric in scaling.metrics] or _by_runtime(subject)
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name},
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
    }
    return (
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(subject.placed, subject.name),
            "spec": spec | ({"metrics": metrics} if metrics else {}),
        },
    )


def _by_runtime(subject: Subject) -> list[dict[str, Any]]:
    name = RUNTIMES[subject.placed.workload.runtime].requests_metric
    return [_metric(Metric(name=name, target_average_value=_REQUESTS_EACH))] if name else []


def _metric(metric: Metric) -> dict[str, Any]:
    target: dict[str, Any]
    if metric.target_average_utilization is not None:
        target = {"type": "Utilization", "averageUtilization": metric.target_average_utilization}
    else:
        stated = metric.target_average_value
        value = _REQUESTS_EACH if stated is None else stated
        target = {"type": "AverageValue", "averageValue": canonical(value)}
    if metric.type == "Resource":
        return {"type": "Resource", "resource": {"name": metric.name, "target": target}}
    return {"type": "Pods", "pods": {"metric": {"name": metric.name}, "target": target}}
