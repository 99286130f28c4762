"""The state of a service on each node where it is placed. Pure.

On a pool of cluster nodes it comes from the Deployment; on a node with an agent from the agent,
over HTTP or by its entry in `status.instances` while its Lease is renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.observation import SCALED_TO_ZERO, Instance
from reconciler.fleet.workload import Workload
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.instance_entry import is_of_pool
from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import is_benchmark
from reconciler.kube.running.outlook import models_of, outlook
from reconciler.kube.running.readiness import Progress, Readiness
from reconciler.kube.status.conditions import Truth, cut
from reconciler.kube.status.view import ClusterView


@dataclass(frozen=True, slots=True)
class PlacementStatus:
    """One entry of `status.placements`. `failed`: it will not become ready without a change;
    `models`: whether its model files are there."""

    workload: Workload
    ready: Truth
    reason: str
    message: str = ""
    replicas: int | None = None
    ready_replicas: int | None = None
    endpoint: str | None = None
    failed: bool = False
    models: Readiness | None = None  # None: unknown

    @property
    def entry(self) -> dict[str, Any]:
        """The entry in the status."""
        given = {
            "node": self.workload.node,
            "cluster": self.workload.cluster,
            "target": self.workload.target,
            "ready": self.ready == "True",
            "replicas": self.replicas,
            "readyReplicas": self.ready_replicas,
            "reason": self.reason,
            "message": cut(self.message) or None,
            "endpoint": self.endpoint,
        }
        return {name: value for name, value in given.items() if value is not None}


def placed(view: ClusterView, live: Manifest, workload: Workload) -> PlacementStatus:
    """The state of one workload, on any kind of node."""
    if workload.cluster is not None:
        return _in_cluster(view, workload)
    return _on_agent(view, live, workload)


def _in_cluster(view: ClusterView, workload: Workload) -> PlacementStatus:
    """For another cluster only the instance is known."""
    if workload.cluster != view.cluster:
        instance = view.instance(workload.ref, workload.target)
        return _of_instance(workload, instance) if instance else _silent(view, workload)
    deployments = view.children(workload.ref, "Deployment")
    jobs = [job for job in view.children(workload.ref, "Job") if not is_benchmark(job)]
    pods = view.pods.get(workload.ref, ())
    if not deployments:
        why = "there is no Deployment yet"
        return PlacementStatus(workload, "False", "Progressing", why, models=models_of(jobs, pods))
    status = deployments[0].get("status") or {}
    scaled_object = next(iter(view.children(workload.ref, "ScaledObject")), None)
    readiness = outlook(deployments[0], jobs, pods, workload.inputs, scaled_object)
    is_at_zero = readiness.reason == SCALED_TO_ZERO  # then Kubernetes counts no pod that ends
    total, ready = (0, 0) if is_at_zero else map(status.get, ("replicas", "readyReplicas"))
    return PlacementStatus(
        workload,
        "True" if readiness.is_ready else "False",
        readiness.reason or "Ready",
        readiness.message,
        total or 0,
        ready or 0,
        failed=readiness.failed,
        models=readiness.models,
    )


def _on_agent(view: ClusterView, live: Manifest, workload: Workload) -> PlacementStatus:
    instance = view.instance(workload.ref, workload.target)
    state = view.plan.targets.get(workload.target)
    if instance is not None:
        return _of_instance(workload, instance)
    is_renewed = view.leases.get(workload.node) is LeaseState.RENEWED
    for entry in (live.get("status") or {}).get("instances") or () if is_renewed else ():
        if entry.get("node") == workload.node and not is_of_pool(entry):
            return _of_entry(workload, entry)
    if state is not None and state.reachable:
        why = "the agent does not run it yet"
        return PlacementStatus(workload, "False", "NotReady", why)
    return _silent(view, workload)


def _of_instance(workload: Workload, instance: Instance) -> PlacementStatus:
    present = Readiness(Progress.CURRENT) if instance.pid is not None or instance.ready else None
    if instance.inputs_digest != workload.inputs_digest:
        reason, why = "SettingsChanged", "it still runs with the settings of an earlier revision"
        if (waits := instance.pending) is not None:
            reason, why = waits.reason, f"{why}; update pending: {waits.message}"
        return PlacementStatus(workload, "False", reason, why, endpoint=instance.endpoint)
    ready: Truth = "True" if instance.ready and not instance.gone else "False"
    answers = ready == "True" and not instance.is_scaled_to_zero
    reason = "Ready" if answers else instance.reason
    return PlacementStatus(
        workload, ready, reason, instance.message, endpoint=instance.endpoint, models=present
    )


def _of_entry(workload: Workload, entry: Mapping[str, Any]) -> PlacementStatus:
    """From an agent's entry: valid as long as its Lease is renewed."""
    if entry.get("inputsDigest") not in (None, workload.inputs_digest):
        reason, why = "SettingsChanged", "the agent has not taken up the newest settings yet"
        if waits := entry.get("pending") or entry.get("blocked"):
            reason, why = str(waits.get("reason")), f"{why}: {waits.get('message') or ''}"
        return PlacementStatus(workload, "False", reason, why)
    ready: Truth = "True" if entry.get("ready") is True else "False"
    reason = "Ready" if ready == "True" else str(entry.get("reason") or "NotReady")
    models = Readiness(Progress.CURRENT) if ready == "True" else None
    message, endpoint = str(entry.get("message") or ""), entry.get("endpoint")
    return PlacementStatus(workload, ready, reason, message, endpoint=endpoint, models=models)


def _silent(view: ClusterView, workload: Workload) -> PlacementStatus:
    """Unreachable is never absent: the node may well be serving."""
    state = view.plan.targets.get(workload.target)
    if workload.node in view.leases:
        why = f"the agent of {workload.node} does not renew its Lease; what it runs is not known"
        return PlacementStatus(workload, "Unknown", "AgentSilent", why)
    message = state.message if state else ""
    why = message or f"{workload.target} was not heard; what it runs is not known"
    return PlacementStatus(workload, "Unknown", "NotReachable", why)
