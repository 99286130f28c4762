"""How far an object of a cluster is, and why."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.running.readiness import Progress, readiness
from tests.support.cluster_views import child, deployment, job, network_service

_STUCK = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
_QUOTA = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]


_NOT_YET = "the Deployment does not call itself available yet"


def _condition(kind: str, status: str = "True", **said: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, **said}]}


def _live(kind: str, spec: dict[str, Any] | None, status: dict[str, Any] | None) -> dict[str, Any]:
    return child(kind, "v1") | {"spec": spec, "status": status}


# Of each kind: its spec and status, how far it is, why, and what is said of it.
_FAR: list[tuple[dict[str, Any], Progress, str, str]] = [
    (deployment(), Progress.CURRENT, "", ""),
    (deployment(wanted=0, ready=0), Progress.CURRENT, "", ""),
    (
        deployment(ready=0),
        Progress.IN_PROGRESS,
        "ReplicasNotReady",
        "0 of 1 replicas are ready",
    ),
    (
        deployment(wanted=3, ready=3, readyReplicas=2),
        Progress.IN_PROGRESS,
        "ReplicasNotReady",
        "2 of 3 replicas are ready",
    ),
    (
        deployment(wanted=3, ready=3, availableReplicas=1),
        Progress.IN_PROGRESS,
        "ReplicasNotReady",
        "1 of 3 replicas are ready",
    ),
    (
        deployment(wanted=2, ready=2, updatedReplicas=1),
        Progress.IN_PROGRESS,
        "Updating",
        "1 of 2 replicas are up to date",
    ),
    (
        child("Deployment", "apps/v1")
        | {"spec": {}, "status": {"observedGeneration": 1}, "metadata": {"generation": 1}},
        Progress.IN_PROGRESS,
        "Updating",
        "0 of 1 replicas are up to date",
    ),
    (
        deployment(replicas=2),
        Progress.IN_PROGRESS,
        "OldReplicas",
        "1 old replica is to end",
    ),
    (
        deployment(replicas=3),
        Progress.IN_PROGRESS,
        "OldReplicas",
        "2 old replicas are to end",
    ),
    (
        deployment(observedGeneration=0),
        Progress.IN_PROGRESS,
        "GenerationNotObserved",
        "generation 1 is not observed yet (last: 0)",
    ),
    (deployment(conditions=[]), Progress.IN_PROGRESS, "NotAvailable", _NOT_YET),
    (deployment(conditions=None), Progress.IN_PROGRESS, "NotAvailable", _NOT_YET),
    (
        deployment(conditions=["odd", {"status": "True"}]),
        Progress.IN_PROGRESS,
        "NotAvailable",
        _NOT_YET,
    ),
    (
        deployment(ready=0, conditions=_STUCK),
        Progress.FAILED,
        "ProgressDeadlineExceeded",
        "",
    ),
    (deployment(ready=0, conditions=_QUOTA), Progress.FAILED, "FailedCreate", ""),
    (
        deployment() | {"status": _condition("ReplicaFailure", message="full")},
        Progress.IN_PROGRESS,
        "GenerationNotObserved",
        "generation 1 is not observed yet",
    ),
    (
        deployment(**_condition("ReplicaFailure", message="full")),
        Progress.FAILED,
        "ReplicaFailure",
        "full",
    ),
    (
        deployment(ready=0, **_condition("ReplicaFailure", "False", message="was full")),
        Progress.IN_PROGRESS,
        "ReplicasNotReady",
        "0 of 1 replicas are ready",
    ),
    (job(), Progress.IN_PROGRESS, "JobRunning", "the Job runs"),
    (job(type="Complete"), Progress.CURRENT, "", ""),
    (job(type="Complete", status="False"), Progress.IN_PROGRESS, "JobRunning", "the Job runs"),
    (job(type="Failed", status="False"), Progress.IN_PROGRESS, "JobRunning", "the Job runs"),
    (job(type="Failed", message="twice"), Progress.FAILED, "JobFailed", "twice"),
    (
        job(type="Failed", reason="BackoffLimitExceeded"),
        Progress.FAILED,
        "BackoffLimitExceeded",
        "",
    ),
    (
        _live("Job", None, {"startTime": "now", "failed": 2}),
        Progress.IN_PROGRESS,
        "JobRunning",
        "the Job runs, after 2 attempts that failed",
    ),
    (
        _live("Job", {"suspend": True}, {"startTime": "now"}),
        Progress.IN_PROGRESS,
        "Suspended",
        "the Job is suspended",
    ),
    (_live("Job", None, None), Progress.IN_PROGRESS, "JobPending", "the Job has not started"),
    (
        _live("PersistentVolumeClaim", None, {"phase": "Bound"}),
        Progress.CURRENT,
        "",
        "",
    ),
    (
        _live("PersistentVolumeClaim", None, None),
        Progress.IN_PROGRESS,
        "NotBound",
        "the claim is Pending",
    ),
    (
        _live("PersistentVolumeClaim", None, {"phase": "Lost"}),
        Progress.FAILED,
        "VolumeLost",
        "the claim's volume is gone; what was on it is lost",
    ),
    (network_service(), Progress.CURRENT, "", ""),
    (
        _live("Service", {"type": "LoadBalancer"}, None),
        Progress.IN_PROGRESS,
        "NoAddress",
        "the load balancer has given it no address yet",
    ),
    (
        _live("Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "::1"}]}}),
        Progress.CURRENT,
        "",
        "",
    ),
    (
        _live("HorizontalPodAutoscaler", None, _condition("ScalingActive", "False")),
        Progress.CURRENT,
        "",
        "",
    ),
    (
        _live("HorizontalPodAutoscaler", None, _condition("AbleToScale", "False", message="no")),
        Progress.IN_PROGRESS,
        "NotAbleToScale",
        "no",
    ),
    (_live("ConfigMap", None, None), Progress.CURRENT, "", ""),
    (
        deployment() | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        Progress.TERMINATING,
        "Terminating",
        "it is being deleted",
    ),
    (
        deployment() | {"metadata": {"deletionTimestamp": "now", "finalizers": ["x/backup"]}},
        Progress.TERMINATING,
        "Terminating",
        "it is being deleted and waits for x/backup",
    ),
    (deployment() | {"metadata": {"name": "chat"}}, Progress.CURRENT, "", ""),
]


@pytest.mark.parametrize(("live", "progress", "reason", "message"), _FAR)
def test_an_object_is_current_only_once_all_that_its_spec_says_is_so(
    live: dict[str, Any], progress: Progress, reason: str, message: str
) -> None:
    found = readiness(live)

    assert (found.progress, found.reason, found.message) == (progress, reason, message)
    assert found.is_current == (progress is Progress.CURRENT)


_AVAILABLE = {"type": "Available", "status": "True"}
_ROLLED = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
_ROLLING = {"type": "Progressing", "status": "False", "reason": "ReplicaSetUpdated"}
_LATE = {"progressDeadlineSeconds": 600}
_CURRENT, _WAITS, _FAILED = Progress.CURRENT, Progress.IN_PROGRESS, Progress.FAILED


def _rollout(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A Deployment of two replicas that is through, but for what is said."""
    made = deployment(wanted=2, ready=2, **{"conditions": [_AVAILABLE, _ROLLED], **status})
    return made | {"spec": made["spec"] | _LATE | (spec or {})}


# As the rules of kstatus have it (cli-utils, pkg/kstatus/status/core.go and generic.go): an object,
# what they say of it, and what we say where that is another thing, as the module's docstring names.
_KSTATUS: dict[str, tuple[dict[str, Any], Progress, Progress | None]] = {
    "a rollout that is through": (_rollout(), _CURRENT, None),
    "fewer replicas than wanted": (_rollout(replicas=1, updatedReplicas=1), _WAITS, None),
    "old replicas among them": (_rollout(updatedReplicas=1), _WAITS, None),
    "more replicas than wanted": (_rollout(replicas=3), _WAITS, None),
    "too few available": (_rollout(availableReplicas=1), _WAITS, None),
    "too few ready": (_rollout(readyReplicas=1), _WAITS, None),
    "not available": (_rollout(conditions=[_ROLLED]), _WAITS, None),
    "another generation": (_rollout(observedGeneration=2), _WAITS, None),
    "past its deadline": (_rollout(conditions=[_AVAILABLE, *_STUCK]), _FAILED, None),
    "without a deadline": (
        _rollout({"progressDeadlineSeconds": 2**31 - 1}, conditions=[_AVAILABLE]),
        _CURRENT,
        None,
    ),
    "counts that are right while it progresses": (
        _rollout(conditions=[_AVAILABLE, _ROLLING]),
        _WAITS,
        _CURRENT,
    ),
    "pods that cannot be made": (
        _rollout(readyReplicas=1, conditions=[_AVAILABLE, _ROLLED, *_QUOTA]),
        _WAITS,
        _FAILED,
    ),
    "no generation observed": (_rollout(observedGeneration=None), _CURRENT, _WAITS),
    "a deployment that says it is stalled": (
        _rollout(conditions=[_AVAILABLE, _ROLLED, {"type": "Stalled", "status": "True"}]),
        _FAILED,
        _CURRENT,
    ),
    "a job that is complete": (job(type="Complete"), _CURRENT, None),
    "a job that failed": (job(type="Failed"), _FAILED, None),
    "a job that has not started": (_live("Job", {}, {}), _WAITS, None),
    "a job that runs": (job(), _CURRENT, _WAITS),
    "a job that is suspended": (
        _live("Job", {"suspend": True}, _condition("Suspended")),
        _CURRENT,
        _WAITS,
    ),
    "a bound claim": (_live("PersistentVolumeClaim", {}, {"phase": "Bound"}), _CURRENT, None),
    "a pending claim": (_live("PersistentVolumeClaim", {}, {"phase": "Pending"}), _WAITS, None),
    "a claim without a phase": (_live("PersistentVolumeClaim", {}, {}), _WAITS, None),
    "a lost claim": (_live("PersistentVolumeClaim", {}, {"phase": "Lost"}), _WAITS, _FAILED),
    "a service": (network_service(), _CURRENT, None),
    "a load balancer without any address": (
        _live("Service", {"type": "LoadBalancer"}, {}),
        _WAITS,
        None,
    ),
    "a load balancer without an outer address": (
        _live("Service", {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}, {}),
        _CURRENT,
        _WAITS,
    ),
    "an autoscaler": (_live("HorizontalPodAutoscaler", {}, {}), _CURRENT, None),
    "an autoscaler that cannot scale": (
        _live("HorizontalPodAutoscaler", {}, _condition("AbleToScale", "False")),
        _CURRENT,
        _WAITS,
    ),
    "a pod that is pending": (_live("Pod", {}, {"phase": "Pending"}), _WAITS, _CURRENT),
    "an object without a status": (_live("ConfigMap", {}, {}), _CURRENT, None),
}


@pytest.mark.parametrize(("live", "theirs", "ours"), _KSTATUS.values(), ids=_KSTATUS)
def test_an_object_is_judged_as_kstatus_does_but_where_the_docstring_says_so(
    live: dict[str, Any], theirs: Progress, ours: Progress | None
) -> None:
    assert theirs is not ours
    assert readiness(live).progress is (ours or theirs)
