"""How far an object of a cluster is, in the words of kstatus. Pure.

As cli-utils' pkg/kstatus judges them, with these departures:
- A Job is current once it is complete: what waits for one waits for what it fetches.
- A claim that is Lost, and a Deployment that cannot make its pods (ReplicaFailure), have failed:
  neither mends itself, and their reasons are what people have to read.
- A Deployment that no controller has looked at (observedGeneration) is not current: nothing is
  known of it. One whose counts are right is, whatever Progressing says but that its deadline is
  over: what serves, serves.
- A load balancer is current with an address outside the cluster, which is what clients are told.
- An autoscaler waits while it is not AbleToScale; kstatus has no rule for it.
- Stalled, Reconciling and Ready are not read, as no kind of ours has them, and other kinds (pods,
  StatefulSets) are not judged by their status: nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from reconciler.kube.objects import Manifest, finalizers_of


class Progress(StrEnum):
    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Readiness:
    """`reason` is a CamelCase word, `message` a line for people; both empty where it is current."""

    progress: Progress
    reason: str = ""
    message: str = ""

    @property
    def is_current(self) -> bool:
        return self.progress is Progress.CURRENT


def readiness(live: Manifest) -> Readiness:
    """How far a live object is with what its spec says now."""
    metadata = live["metadata"]
    if metadata.get("deletionTimestamp"):
        waits = f" and waits for {by}" if (by := finalizers_of(live)) else ""
        return Readiness(Progress.TERMINATING, "Terminating", f"it is being deleted{waits}")
    if behind := _behind(live):
        return behind
    judge = _JUDGES.get(live["kind"])
    return judge(live.get("spec") or {}, live.get("status") or {}) if judge else _CURRENT


_CURRENT = Readiness(Progress.CURRENT)


def _waits(reason: str, message: str) -> Readiness:
    return Readiness(Progress.IN_PROGRESS, reason, message)


def _failed(reason: str, message: str) -> Readiness:
    return Readiness(Progress.FAILED, reason, message)


def _behind(live: Manifest) -> Readiness | None:
    """Its controller has not seen the newest spec yet."""
    wanted = live["metadata"].get("generation")
    seen = (live.get("status") or {}).get("observedGeneration")
    if seen is None and live["kind"] not in _SAYS_GENERATION:
        return None
    if wanted is None or seen == wanted:
        return None
    last = "" if seen is None else f" (last: {seen})"
    return _waits("GenerationNotObserved", f"generation {wanted} is not observed yet{last}")


_SAYS_GENERATION = frozenset({"Deployment"})  # always, once their controller has looked


def _deployment(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Readiness:
    """https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#deployment-status"""
    conditions = conditions_of(status)
    stuck = conditions.get("Progressing", {})
    if stuck.get("reason") == "ProgressDeadlineExceeded":
        return _failed("ProgressDeadlineExceeded", str(stuck.get("message", "")))
    broken = conditions.get("ReplicaFailure", {})
    if broken.get("status") == "True":
        return _failed(str(broken.get("reason", "ReplicaFailure")), str(broken.get("message", "")))
    wanted = spec.get("replicas", 1)
    counts = {name: status.get(name, 0) for name in _COUNTS}
    if counts["updatedReplicas"] < wanted:
        return _waits(
            "Updating", f"{counts['updatedReplicas']} of {wanted} replicas are up to date"
        )
    if counts["replicas"] > wanted:
        old = counts["replicas"] - wanted
        return _waits("OldReplicas", f"{old} old replica{' is' if old == 1 else 's are'} to end")
    if counts["availableReplicas"] < wanted or counts["readyReplicas"] < wanted:
        ready = min(counts["availableReplicas"], counts["readyReplicas"])
        return _waits("ReplicasNotReady", f"{ready} of {wanted} replicas are ready")
    if conditions.get("Available", {}).get("status") != "True":
        return _waits("NotAvailable", "the Deployment does not call itself available yet")
    return _CURRENT


_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def _job(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Readiness:
    conditions = conditions_of(status)
    failed = conditions.get("Failed", {})
    if failed.get("status") == "True":
        return _failed(str(failed.get("reason", "JobFailed")), str(failed.get("message", "")))
    if conditions.get("Complete", {}).get("status") == "True":
        return _CURRENT
    if spec.get("suspend"):
        return _waits("Suspended", "the Job is suspended")
    if not status.get("startTime"):
        return _waits("JobPending", "the Job has not started")
    tries = status.get("failed", 0)
    again = f", after {tries} attempts that failed" if tries else ""
    return _waits("JobRunning", f"the Job runs{again}")


def _claim(_: Mapping[str, Any], status: Mapping[str, Any]) -> Readiness:
    phase = status.get("phase", "Pending")
    if phase == "Lost":
        return _failed("VolumeLost", "the claim's volume is gone; what was on it is lost")
    return _CURRENT if phase == "Bound" else _waits("NotBound", f"the claim is {phase}")


def _service(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Readiness:
    if spec.get("type") != "LoadBalancer":
        return _CURRENT
    if (status.get("loadBalancer") or {}).get("ingress"):
        return _CURRENT
    return _waits("NoAddress", "the load balancer has given it no address yet")


def _autoscaler(_: Mapping[str, Any], status: Mapping[str, Any]) -> Readiness:
    """One without metrics leaves the replicas as they are: nothing waits for it."""
    able = conditions_of(status).get("AbleToScale", {})
    if able.get("status") == "False":
        return _waits(str(able.get("reason", "NotAbleToScale")), str(able.get("message", "")))
    return _CURRENT


_JUDGES: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Readiness]] = (
    MappingProxyType(
        {
            "Deployment": _deployment,
            "Job": _job,
            "PersistentVolumeClaim": _claim,
            "Service": _service,
            "HorizontalPodAutoscaler": _autoscaler,
        }
    )
)


def conditions_of(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The conditions of a status by their type."""
    listed = status.get("conditions") or ()
    return {c["type"]: c for c in listed if isinstance(c, Mapping) and "type" in c}
