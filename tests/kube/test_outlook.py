"""Why a service in a cluster is not ready: its condition, `status` and `--once` say the same."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.agents.arrival import Stage, arrivals
from reconciler.core.observation import Observation, RevisionState, TargetState
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import INPUTS_ANNOTATION, Manifest, id_of
from reconciler.kube.running.instances import Running, explained, instances
from reconciler.kube.running.outlook import at_zero, models_of, outlook
from reconciler.kube.running.pods import essentials, trouble
from reconciler.kube.running.readiness import Progress
from reconciler.kube.status.status import service_status
from reconciler.loop.desired import Desired
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
    scaled_object,
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
    found = {service_ref(): tuple(map(essentials, pods))}
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


KEDA = {"minReplicas": 0, "maxReplicas": 2, "keda": {"triggers": [{"type": "prometheus"}]}}
OF_KEDA = desired(fleet(chat={"autoscaling": KEDA}))
ENDING = {"replicas": 1, "readyReplicas": 1, "observedGeneration": 1}  # of generation 2


READY_SCALER = scaled_object(status="True", reason="ScaledObjectReady", message="is ready")
BROKEN = "Triggers defined in ScaledObject are not working correctly"
BROKEN_SCALER = scaled_object(status="False", reason="TriggerError", message=BROKEN)
PAUSED_SCALER = scaled_object(status="True", reason="ScaledObjectReady", message="is ready")
PAUSED_SCALER["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-replicas": "0"}


@pytest.mark.parametrize(
    ("want", "scaler", "truth", "ready", "says"),
    [
        (
            OF_KEDA,
            READY_SCALER,
            "True",
            "1 of 1 services ready, 1 of them scaled to zero",
            "a trigger of KEDA's",
        ),
        (OF_KEDA, None, "False", "0 of 1 services ready", "it has no ScaledObject here"),
        (OF_KEDA, scaled_object(), "False", "0 of 1 services ready", "KEDA has not looked at it"),
        (OF_KEDA, BROKEN_SCALER, "False", "0 of 1 services ready", f"TriggerError: {BROKEN}"),
        (OF_KEDA, PAUSED_SCALER, "False", "0 of 1 services ready", "keda.sh/paused-replicas"),
        (CHAT, None, "False", "0 of 1 services ready", "kubectl scale --replicas=1"),
    ],
)
def test_what_was_scaled_to_zero_answers_nothing_and_is_ready_where_keda_starts_it(
    want: Desired, scaler: Manifest | None, truth: str, ready: str, says: str
) -> None:
    """Said once: while its last pods end the same is said as after that."""
    now, (workload,) = "2026-01-02T00:00:00Z", want.assignment.workloads
    ending, ended = deployment(wanted=0, **ENDING), deployment(wanted=0, ready=0)
    ending["metadata"]["generation"] = 2
    for each in (ending, ended):
        each["metadata"]["annotations"] = {INPUTS_ANNOTATION: to_json(workload.inputs).decode()}
    scalers = [scaler] if scaler else []
    live = {id_of(each): each for each in (ended, *scalers)}

    first, then = (
        service_status(view(want, each, *scalers), live_service(generation=1), now)
        for each in (ending, ended)
    )
    running = explained(instances(TARGET, live, {workload.ref: workload}, {}), live, {})

    conditions = {c["type"]: c for c in then["conditions"]}
    state = TargetState(TARGET, reachable=True, revision=RevisionState("r", "r"))
    text = status_text(Status(Observation({TARGET: state}, running)), StatusStyle(now=0))
    assert then == first
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == (truth, "ScaledToZero")
    assert says in conditions["Ready"]["message"]
    assert conditions["ModelsReady"]["status"] == "Unknown"
    assert ("Reconciling" in conditions) == (truth == "False")
    assert (then["replicas"], then["readyReplicas"]) == (0, 0)
    assert "  ScaledToZero" in text
    assert says in text
    assert "base_url" not in text
    assert ready in text


def test_what_keda_says_later_counts_although_the_deployment_is_the_same() -> None:
    known, (workload,) = Running(), OF_KEDA.assignment.workloads
    zero = deployment(wanted=0, ready=0)
    zero["metadata"]["annotations"] = {INPUTS_ANNOTATION: to_json(workload.inputs).decode()}

    def said(scaler: Manifest) -> tuple[bool, str]:
        live = {id_of(zero): zero, id_of(scaler): scaler}
        running = instances(TARGET, live, {workload.ref: workload}, {}, known)
        (instance,) = explained(running, live, {}, known)
        return instance.ready, instance.message

    assert said(READY_SCALER)[0]
    assert [BROKEN in said(each)[1] for each in (BROKEN_SCALER, PAUSED_SCALER)] == [True, False]
    assert said(READY_SCALER)[0]


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"lifecycle": "x"},
        {"lifecycle": {"autoscaling": "x"}},
        {"lifecycle": {"autoscaling": {"minReplicas": 1, "maxReplicas": 2}}},  # leaves it at 0
    ],
)
def test_who_scales_it_is_read_from_what_people_can_write(inputs: dict[str, Any]) -> None:
    assert not at_zero(inputs, READY_SCALER).is_ready
    assert not outlook(deployment(wanted=0, ready=0), (), (), inputs, READY_SCALER).is_ready
    assert outlook(deployment(), (), (), inputs, READY_SCALER).is_ready


def test_what_is_ready_has_no_reason_to_give() -> None:
    live = deployment()
    running = instances(TARGET, {id_of(live): live}, {}, {})

    assert explained(running, {id_of(live): live}, {}) == running
    assert [(found.ready, found.reason) for found in running] == [(True, "Ready")]


def ended(code: int = 1, **said: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **said}}


def engine(state: dict[str, Any] | None = None, last: dict[str, Any] | None = None) -> Manifest:
    return pod(containerStatuses=[{"name": "engine", "state": state, "lastState": last}])


WAITS = {"waiting": {"reason": "CrashLoopBackOff"}}
KILLED = "container engine ended with exit code 137"
EVICTED = pod(phase="Failed", reason="Evicted", message="low on memory")

# Pods, and what tells most of what is wrong with them.
TROUBLES: dict[str, tuple[list[Manifest], tuple[str, str] | None]] = {
    "nothing is known": ([pod()], None),
    "it is being made": ([engine({"waiting": {"reason": "ContainerCreating"}})], None),
    "its first containers run": ([engine({"waiting": {"reason": "PodInitializing"}})], None),
    "it waits": ([engine(WAITS)], ("CrashLoopBackOff", "container engine: CrashLoopBackOff")),
    "it waits for an odd reason": ([engine({"waiting": {"reason": "so so"}})],
                                   ("NotReady", "container engine: so so")),
    "it waits for no reason": ([engine({"waiting": {}})], None),
    "it ended well": ([engine(None, ended(0, message="ModelCorrupt: bytes"))], None),
    "an end tells more than that it waits": ([engine(WAITS, ended(2))],
                                             ("Error", "container engine ended with exit code 2")),
    "a kill for memory has the agents' word": ([engine(ended(137, reason="OOMKilled"))],
                                               ("OutOfMemory", KILLED)),
    "what it said last tells more": ([engine(ended(137, reason="OOMKilled", message="no room"))],
                                     ("OutOfMemory", f"{KILLED}: no room")),
    "one of our programs names the reason": ([engine(None, ended(message="ModelCorrupt: bytes"))],
                                             ("ModelCorrupt", "bytes")),
    "or both in JSON": ([engine(None, ended(message=LOST))],
                        ("DownloadFailed", "404 from models.test")),
    "JSON without words": ([engine(None, ended(message='{"reason": "Lost"}'))], ("Lost", "")),
    "JSON without a reason": ([engine(None, ended(message='{"reason": ""}'))],
                              ("Error", 'container engine ended with exit code 1: {"reason": ""}')),
    "JSON that was cut": ([engine(None, ended(message='{"reason": "Lo'))],
                          ("Error", 'container engine ended with exit code 1: {"reason": "Lo')),
    "a colon is no reason": ([engine(ended(message="so: it is"))],
                             ("Error", "container engine ended with exit code 1: so: it is")),
    "evicted": ([EVICTED], ("Evicted", "low on memory")),
    "evicted without a reason": ([pod(phase="Failed")], None),
    "no node tells more than a wait": ([engine(WAITS), pod(conditions=[UNPLACED])],
                                       ("Unschedulable", NOBODY_FITS)),
    "no node tells more than an eviction": ([EVICTED, pod(conditions=[UNPLACED])],
                                            ("Unschedulable", NOBODY_FITS)),
    "an end with words tells more than no node": (
        [pod(conditions=[UNPLACED]), engine(ended(message="no room"))],
        ("Error", "container engine ended with exit code 1: no room")),
    "our own word tells most": (
        [engine(ended(message="no room")), pod(initContainerStatuses=ENDED)],
        ("DownloadFailed", "404 from models.test")),
    "of two alike, the first by name": (
        [engine(ended(3)) | {"metadata": {"name": "b"}},
         engine(ended(2)) | {"metadata": {"name": "a"}}],
        ("Error", "container engine ended with exit code 2")),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "why"), TROUBLES.values(), ids=TROUBLES)
def test_of_all_that_is_wrong_with_pods_what_tells_most_is_said(
    pods: list[Manifest], why: tuple[str, str] | None
) -> None:
    found = trouble(pods)

    assert (found and (found.reason, found.message)) == why
    assert trouble(map(essentials, pods)) == found, "of what is kept of them, too"


def test_of_a_pod_is_kept_what_is_read_of_it() -> None:
    waits = pod(
        phase="Pending",
        conditions=[
            UNPLACED,
            condition("Initialized", "", ""),
            condition("Ready", "", "", "False"),
        ],
        containerStatuses=[{**engine(WAITS)["status"]["containerStatuses"][0], "imageID": "x"}],
    )
    crowded = pod(
        phase="Running",
        conditions=[READY, *(condition(f"x{n}", "", "z" * 500) for n in range(1_000))],
        containerStatuses=RECOVERED,
    )
    crowded["spec"] = {"containers": [{"env": [{"name": f"v{n}"} for n in range(20_000)]}]}
    crowded["metadata"]["annotations"] = {"whole": "y" * 200_000}
    crowded["metadata"]["managedFields"] = [{"manager": f"m{n}"} for n in range(1_000)]

    assert essentials(essentials(waits)) == essentials(waits)
    assert [c["type"] for c in essentials(waits)["status"]["conditions"]] == [
        "PodScheduled",
        "Ready",
    ]
    assert len(to_json(crowded)) > 1_000_000
    assert len(to_json(essentials(crowded))) < 500


@pytest.mark.parametrize(
    ("jobs", "pods", "why"),
    [
        ([job()], [], (Progress.IN_PROGRESS, "JobRunning")),
        ([job()], [pod(owner="Job", containerStatuses=RETRIES)],
         (Progress.IN_PROGRESS, "DownloadFailed")),
        ([job()], [pod(containerStatuses=RETRIES)], (Progress.IN_PROGRESS, "JobRunning")),
        ([job() | {"spec": {"suspend": True}}], [pod(owner="Job", containerStatuses=RETRIES)],
         (Progress.IN_PROGRESS, "Suspended")),
        ([job(type="Failed", reason="Late")], [], (Progress.FAILED, "Late")),
        ([job(type="Failed", reason="Late")], [pod(owner="Job", containerStatuses=ENDED)],
         (Progress.FAILED, "DownloadFailed")),
        ([job(type="Complete")], [pod(owner="Job", containerStatuses=RETRIES)],
         (Progress.CURRENT, "")),
    ],
)  # fmt: skip
def test_models_are_as_far_as_the_worst_of_their_jobs_and_its_pods_say_why(
    jobs: list[Manifest], pods: list[Manifest], why: tuple[Progress, str]
) -> None:
    found = models_of(jobs, map(essentials, pods))

    assert (found and (found.progress, found.reason)) == why


NEVER = job(type="Failed", reason="DeadlineExceeded", message="too slow")
GOING = pod() | {"metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("live", "jobs", "pods", "failed", "models", "reason"),
    [
        (deployment(), [NEVER], [], False, Progress.CURRENT, ""),
        (deployment(ready=0), [], [], False, None, "ReplicasNotReady"),
        (deployment(ready=0), [job()], [], False, Progress.IN_PROGRESS, "ModelsPending"),
        (deployment(ready=0), [job(type="Complete")], [], False, Progress.CURRENT,
         "ReplicasNotReady"),
        (deployment(ready=0), [job(type="Complete"), NEVER], [], True, Progress.FAILED,
         "DeadlineExceeded"),
        (deployment(ready=0), [job(), job(type="Complete")], [], False, Progress.IN_PROGRESS,
         "ModelsPending"),
        (deployment(ready=0, conditions=[OVERDUE]), [], [], True, None,
         "ProgressDeadlineExceeded"),
        (deployment(ready=0, conditions=[OVERDUE]), [job()], [], False, Progress.IN_PROGRESS,
         "ModelsPending"),
        (deployment(updatedReplicas=0), [job()], [engine(WAITS)], False, Progress.IN_PROGRESS,
         "Updating"),
        (deployment(ready=0), [job(type="Complete")], [pod(owner="Job", containerStatuses=ENDED)],
         False, Progress.CURRENT, "DownloadFailed"),
        (deployment(ready=0), [job()], [GOING], False, Progress.IN_PROGRESS, "ModelsPending"),
        (deployment(conditions=[]), [], [engine(WAITS)], False, None, "CrashLoopBackOff"),
    ],
)  # fmt: skip
def test_a_service_waits_for_its_models_or_has_failed(
    live: Manifest,
    jobs: list[Manifest],
    pods: list[Manifest],
    failed: bool,
    models: Progress | None,
    reason: str,
) -> None:
    found = outlook(live, jobs, pods)

    assert (found.failed, found.reason) == (failed, reason)
    assert (found.models and found.models.progress) == models
    assert found.is_ready == (reason == "")
