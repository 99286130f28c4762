"""How a service is on each node that it is placed on. Pure.

On a pool of cluster nodes its Deployment says so. On a node with an agent, the agent does: over
HTTP, or by its entry in `status.instances` as long as its Lease is renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.kube.objects import Manifest
from reconciler.kube.publishing.heartbeat import LeaseState
from reconciler.kube.telling.conditions import Truth, cut
from reconciler.kube.telling.outlook import models_of, outlook
from reconciler.kube.telling.readiness import Progress, Readiness
from reconciler.kube.telling.view import View
from reconciler.plan import Instance
from reconciler.workload import Workload


@dataclass(frozen=True, slots=True)
class Placed:
    """One entry of `status.placements`. `failed`: it will not become ready by itself; `models`:
    whether its model files are there."""

    workload: Workload
    ready: Truth
    reason: str
    message: str = ""
    replicas: int | None = None
    ready_replicas: int | None = None
    endpoint: str | None = None
    failed: bool = False
    models: Readiness | None = None  # None: not known

    @property
    def entry(self) -> dict[str, Any]:
        """As the status shows it."""
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


def placed(view: View, live: Manifest, workload: Workload) -> Placed:
    """How one workload is, wherever it runs."""
    if workload.cluster is not None:
        return _in_cluster(view, workload)
    return _on_agent(view, live, workload)


def _in_cluster(view: View, workload: Workload) -> Placed:
    """Of another cluster nothing is known here but what its instance says."""
    if workload.cluster != view.cluster:
        found = view.instance(workload.ref, workload.target)
        return _of_instance(workload, found) if found else _silent(view, workload)
    deployments = view.children(workload.ref, "Deployment")
    jobs, pods = view.children(workload.ref, "Job"), view.pods.get(workload.ref, ())
    if not deployments:
        why = "there is no Deployment yet"
        return Placed(workload, "False", "Progressing", why, models=models_of(jobs, pods))
    status = deployments[0].get("status") or {}
    counts = (status.get("replicas", 0), status.get("readyReplicas", 0))
    told = outlook(deployments[0], jobs, pods)
    if told.is_ready:
        return Placed(workload, "True", "Ready", "", *counts, models=told.models)
    reason, message = told.reason, told.message
    return Placed(
        workload, "False", reason, message, *counts, failed=told.failed, models=told.models
    )


def _on_agent(view: View, live: Manifest, workload: Workload) -> Placed:
    found = view.instance(workload.ref, workload.target)
    state = view.plan.targets.get(workload.target)
    if found is not None:
        return _of_instance(workload, found)
    is_renewed = view.leases.get(workload.node) is LeaseState.RENEWED
    for entry in (live.get("status") or {}).get("instances") or () if is_renewed else ():
        if entry.get("node") == workload.node:
            return _of_entry(workload, entry)
    if state is not None and state.reachable:
        why = "the agent does not run it yet"
        return Placed(workload, "False", "NotReady", why)
    return _silent(view, workload)


def _of_instance(workload: Workload, found: Instance) -> Placed:
    present = Readiness(Progress.CURRENT) if found.pid is not None or found.ready else None
    if found.inputs_digest != workload.inputs_digest:
        why = "it still runs with the settings of an earlier revision"
        return Placed(workload, "False", "SettingsChanged", why, endpoint=found.endpoint)
    ready: Truth = "True" if found.ready and not found.gone else "False"
    reason = "Ready" if ready == "True" else found.reason
    return Placed(workload, ready, reason, found.message, endpoint=found.endpoint, models=present)


def _of_entry(workload: Workload, entry: Mapping[str, Any]) -> Placed:
    """What an agent wrote: true as long as its Lease is renewed."""
    if entry.get("inputsDigest") not in (None, workload.inputs_digest):
        why = "the agent has not taken up the newest settings yet"
        return Placed(workload, "False", "SettingsChanged", why)
    ready: Truth = "True" if entry.get("ready") is True else "False"
    reason = "Ready" if ready == "True" else str(entry.get("reason") or "NotReady")
    models = Readiness(Progress.CURRENT) if ready == "True" else None
    message, endpoint = str(entry.get("message") or ""), entry.get("endpoint")
    return Placed(workload, ready, reason, message, endpoint=endpoint, models=models)


def _silent(view: View, workload: Workload) -> Placed:
    """Unreachable is never absent: it may well serve."""
    state = view.plan.targets.get(workload.target)
    if workload.node in view.leases:
        why = f"the agent of {workload.node} does not renew its Lease; what it runs is not known"
        return Placed(workload, "Unknown", "AgentSilent", why)
    said = state.message if state else ""
    why = said or f"{workload.target} was not heard; what it runs is not known"
    return Placed(workload, "Unknown", "NotReachable", why)
