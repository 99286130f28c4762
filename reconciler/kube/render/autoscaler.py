"""What scales whole pods of one service, and never single models of a router: a
HorizontalPodAutoscaler, or KEDA's ScaledObject. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.api.service_parts import Autoscaling, Metric
from reconciler.api.traffic import Keda
from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata
from reconciler.kube.render.quantity import canonical
from reconciler.kube.render.subject import Subject
from reconciler.placement.names import MOST, with_suffix
from reconciler.runtimes import RUNTIMES

# If the fleet names no metric: the requests in flight per pod. An adapter must serve the engine's
# metrics to the cluster; CPU, the default of Kubernetes, tells little about a device's load.
_REQUESTS_EACH = 2
# KEDA takes no ScaledObject without a trigger: what a HorizontalPodAutoscaler does without one.
_BY_LOAD = (Metric(type="Resource", name="cpu", target_average_utilization=80),)
_HPA_PREFIX = "keda-hpa-"  # of KEDA's own HorizontalPodAutoscaler, which a label has to hold
_METRICS = "/metrics"  # where the service's author says which, and the runtime nothing
_FIELDS = {"Utilization": "averageUtilization", "AverageValue": "averageValue"}


def autoscalers(subject: Subject) -> tuple[Manifest, ...]:
    """None for a suspended service: there is nothing to scale."""
    scaling = subject.placed.service.spec.autoscaling
    if scaling is None or subject.placed.workload.suspended:
        return ()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": subject.name}
    made = {"metadata": metadata(subject.placed, subject.name)}
    if scaling.keda is not None:
        spec = {"scaleTargetRef": target, **_scaled_object(scaling, scaling.keda, subject)}
        return ({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", **made, "spec": spec},)
    spec = {"scaleTargetRef": target, **_autoscaler(scaling, subject)}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return ({**kind, **made, "spec": spec},)


def _autoscaler(scaling: Autoscaling, subject: Subject) -> dict[str, Any]:
    metrics = [_metric(metric) for metric in scaling.metrics or _by_runtime(subject)]
    return {
        "minReplicas": scaling.min_replicas,
        "maxReplicas": scaling.max_replicas,
        **({"metrics": metrics} if metrics else {}),
    }


def _scaled_object(scaling: Autoscaling, keda: Keda, subject: Subject) -> dict[str, Any]:
    stated = {
        "pollingInterval": keda.polling_interval,
        "cooldownPeriod": keda.cooldown_period,
        "initialCooldownPeriod": keda.initial_cooldown_period,
        "idleReplicaCount": keda.idle_replica_count,
    }
    default = () if keda.triggers else _by_runtime(subject) or _BY_LOAD
    return {
        **{name: value for name, value in stated.items() if value is not None},
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        **_named(subject.name),
        "triggers": [*_triggers(scaling.metrics or default, subject), *keda.triggers],
    }


def _named(service: str) -> dict[str, Any]:
    """A shorter name for what KEDA makes, where its own would be refused."""
    if len(_HPA_PREFIX + service) <= MOST:
        return {}
    return {"advanced": {"horizontalPodAutoscalerConfig": {"name": with_suffix(service, "keda")}}}


def _triggers(metrics: Iterable[Metric], subject: Subject) -> Iterator[dict[str, Any]]:
    """Metrics of pods are summed over them, as KEDA divides by their number itself. It takes the
    pods' addresses from the Service's endpoints, and asks them at the port of the URL."""
    namespace = subject.placed.workload.ref.namespace
    path = RUNTIMES[subject.placed.workload.runtime].metrics_path or _METRICS
    for metric in metrics:
        kind, value = _aim(metric)
        if metric.type == "Resource":
            yield {"type": metric.name, "metricType": kind, "metadata": {"value": str(value)}}
        else:
            yield {
                "type": "metrics-api",
                "metricType": "AverageValue",
                "metadata": {
                    "url": f"http://{subject.name}.{namespace}.svc:{subject.container_port}{path}",
                    "format": "prometheus",
                    "valueLocation": metric.name,
                    "targetValue": str(value),
                    "aggregateFromKubeServiceEndpoints": "true",
                    "aggregationType": "sum",
                },
            }


def _by_runtime(subject: Subject) -> tuple[Metric, ...]:
    name = RUNTIMES[subject.placed.workload.runtime].requests_metric
    return (Metric(name=name, target_average_value=_REQUESTS_EACH),) if name else ()


def _metric(metric: Metric) -> dict[str, Any]:
    kind, value = _aim(metric)
    target = {"type": kind, _FIELDS[kind]: value}
    if metric.type == "Resource":
        return {"type": "Resource", "resource": {"name": metric.name, "target": target}}
    return {"type": "Pods", "pods": {"metric": {"name": metric.name}, "target": target}}


def _aim(metric: Metric) -> tuple[str, int | str]:
    if metric.target_average_utilization is not None:
        return "Utilization", metric.target_average_utilization
    stated = metric.target_average_value
    return "AverageValue", canonical(_REQUESTS_EACH if stated is None else stated)
