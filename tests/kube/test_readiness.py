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
    (deployment() | {"metadata": {"name": "chat"}}, Progress.CURRENT, "", ""),
]


@pytest.mark.parametrize(("live", "progress", "reason", "message"), _FAR)
def test_an_object_is_current_only_once_all_that_its_spec_says_is_so(
    live: dict[str, Any], progress: Progress, reason: str, message: str
) -> None:
    found = readiness(live)

    assert (found.progress, found.reason, found.message) == (progress, reason, message)
    assert found.is_current == (progress is Progress.CURRENT)
