"""Why a service in a cluster is not ready: its condition, `status` and `--once` say the same."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.agents.arrival import Stage, arrivals
from reconciler.core.observation import Observation, RevisionState, TargetState
from reconciler.kube.objects import Manifest, id_of
from reconciler.kube.running.instances import explained, instances
from reconciler.kube.status.status import service_status
from reconciler.report.status import Status
from reconciler.report.status_text import StatusStyle, status_text
from tests.support.cluster_views import (
    CLUSTER,
    deployment,
    desired,
    fleet,
    job,
    live_service,
    pod,
    service_ref,
    view,
)

TARGET = f"cluster/{CLUSTER}"
CHAT = desired(fleet(chat={}))
NOBODY_FITS = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
QUOTA = 'pods "chat-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1'


def condition(kind: str, reason: str, message: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def waiting(reason: str, message: str) -> list[dict[str, Any]]:
    return [{"name": "engine", "state": {"waiting": {"reason": reason, "message": message}}}]


OVERDUE = condition("Progressing", "ProgressDeadlineExceeded", "ReplicaSet has timed out", "False")
FULL = condition("ReplicaFailure", "FailedCreate", QUOTA)
UNPLACED = condition("PodScheduled", "Unschedulable", NOBODY_FITS, "False")
READY = condition("Ready", "", "")
OVER = {"exitCode": 137, "reason": "OOMKilled"}
RECOVERED = [{"name": "engine", "state": {}, "lastState": {"terminated": OVER}}]
LOST = '{"reason": "DownloadFailed", "message": "404 from models.test"}'
ENDED = [{"name": "fetch", "state": {"terminated": {"exitCode": 1, "message": LOST}}}]
RETRIES = [{"name": "fetch", "state": {}, "lastState": ENDED[0]["state"]}]

CASES: dict[str, tuple[list[Manifest], list[Manifest], tuple[str, str]]] = {
    "no pod yet": ([deployment(ready=0)], [], ("ReplicasNotReady", "0 of 1 replicas are ready")),
    "no node": (
        [deployment(ready=0)],
        [pod(conditions=[UNPLACED])],
        ("Unschedulable", NOBODY_FITS),
    ),
    "no node for a new pod beside the old one": (
        [deployment(ready=1, replicas=2)],
        [
            pod(conditions=[READY], containerStatuses=RECOVERED),
            pod(conditions=[UNPLACED]),
        ],
        ("Unschedulable", NOBODY_FITS),
    ),
    "a new pod starts beside the old one": (
        [deployment(ready=1, replicas=2)],
        [pod(conditions=[READY], containerStatuses=RECOVERED)],
        ("OldReplicas", "1 old replica is to end"),
    ),
    "no image": (
        [deployment(ready=0)],
        [pod(containerStatuses=waiting("ImagePullBackOff", "no such image"))],
        ("ImagePullBackOff", "container engine: no such image"),
    ),
    "quota": ([deployment(ready=0, conditions=[FULL])], [], ("FailedCreate", QUOTA)),
    "overdue": (
        [deployment(ready=0, conditions=[OVERDUE])],
        [],
        ("ProgressDeadlineExceeded", "ReplicaSet has timed out"),
    ),
    "overdue for want of an image": (
        [deployment(ready=0, conditions=[OVERDUE])],
        [pod(containerStatuses=waiting("ErrImagePull", "no such image"))],
        ("ErrImagePull", "container engine: no such image"),
    ),
    "downloads": ([deployment(ready=0), job()], [], ("ModelsPending", "the Job runs")),
    "downloads again": (
        [deployment(ready=0), job()],
        [pod(owner="Job", containerStatuses=RETRIES)],
        ("DownloadFailed", "404 from models.test"),
    ),
    "download failed": (
        [deployment(ready=0), job(type="Failed", reason="BackoffLimitExceeded")],
        [pod(owner="Job", containerStatuses=ENDED)],
        ("DownloadFailed", "404 from models.test"),
    ),
}


@pytest.mark.parametrize(("objects", "pods", "why"), CASES.values(), ids=CASES.keys())
def test_the_condition_and_status_and_once_give_the_same_reason(
    objects: list[Manifest], pods: list[Manifest], why: tuple[str, str]
) -> None:
    reason, message = why
    found = {service_ref(): tuple(pods)}
    live, meant = {id_of(o): o for o in objects}, {w.ref: w for w in CHAT.assignment.workloads}
    state = TargetState(TARGET, reachable=True, revision=RevisionState("r", "r"))

    running = explained(instances(TARGET, live, meant, {}), live, found)

    told = service_status(view(CHAT, *objects, pods=found), live_service(), "2026-01-02T00:00:00Z")
    ready = next(c for c in told["conditions"] if c["type"] == "Ready")
    seen = Observation({TARGET: state}, running)
    (arrival,) = arrivals("r", meant.values(), seen, {}, ())
    shown = status_text(Status(seen), StatusStyle(now=0))
    assert (ready["reason"], ready["message"]) == (reason, f"l4: {message}")
    assert told["placements"][0]["reason"] == reason
    assert (arrival.stage, arrival.why) == (Stage.WAITING, f"default/chat {reason}: {message}")
    assert f"  {reason}" in shown
    assert message in shown


def test_what_is_ready_has_no_reason_to_give() -> None:
    live = deployment()
    running = instances(TARGET, {id_of(live): live}, {}, {})

    assert explained(running, {id_of(live): live}, {}) == running
