from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.running.readiness import Progress, readiness
from tests.support.cluster_views import child, deployment, job, network_service

_STUCK = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
_QUOTA = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]


@pytest.mark.parametrize(
    ("live", "progress", "reason"),
    [
        (deployment(), Progress.CURRENT, ""),
        (deployment(wanted=0, ready=0), Progress.CURRENT, ""),
        (deployment(ready=0), Progress.IN_PROGRESS, "ReplicasNotReady"),
        (deployment(updatedReplicas=0), Progress.IN_PROGRESS, "Updating"),
        (deployment(replicas=2), Progress.IN_PROGRESS, "OldReplicas"),
        (deployment(observedGeneration=0), Progress.IN_PROGRESS, "GenerationNotObserved"),
        (deployment(conditions=[]), Progress.IN_PROGRESS, "NotAvailable"),
        (deployment(ready=0, conditions=_STUCK), Progress.FAILED, "ProgressDeadlineExceeded"),
        (deployment(ready=0, conditions=_QUOTA), Progress.FAILED, "FailedCreate"),
        (job(), Progress.IN_PROGRESS, "JobRunning"),
        (job(type="Complete"), Progress.CURRENT, ""),
        (
            job(type="Failed", reason="BackoffLimitExceeded"),
            Progress.FAILED,
            "BackoffLimitExceeded",
        ),
        (network_service(), Progress.CURRENT, ""),
    ],
)
def test_an_object_is_current_only_once_all_that_its_spec_says_is_so(
    live: dict[str, Any], progress: Progress, reason: str
) -> None:
    found = readiness(live)

    assert (found.progress, found.reason) == (progress, reason)


def test_a_deployment_nobody_has_looked_at_yet_is_not_current() -> None:
    live = deployment()
    live["status"] = {}

    found = readiness(live)

    assert (found.reason, found.message) == (
        "GenerationNotObserved",
        "generation 1 is not observed yet",
    )


def test_a_load_balancer_is_current_once_it_has_an_address() -> None:
    live = network_service()
    live["spec"]["type"] = "LoadBalancer"

    assert readiness(live).reason == "NoAddress"

    live["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}

    assert readiness(live).is_current


@pytest.mark.parametrize(
    ("phase", "progress"),
    [("Bound", Progress.CURRENT), ("Pending", Progress.IN_PROGRESS), ("Lost", Progress.FAILED)],
)
def test_a_claim_is_current_once_it_is_bound(phase: str, progress: Progress) -> None:
    live = child("PersistentVolumeClaim", "v1")
    live["status"] = {"phase": phase}

    assert readiness(live).progress is progress


def test_an_autoscaler_without_metrics_holds_nobody_up() -> None:
    live = child("HorizontalPodAutoscaler", "autoscaling/v2")
    live["status"] = {"conditions": [{"type": "ScalingActive", "status": "False"}]}

    assert readiness(live).is_current


def test_what_is_being_deleted_is_terminating_whatever_else_it_says() -> None:
    live = deployment()
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert readiness(live).progress is Progress.TERMINATING
