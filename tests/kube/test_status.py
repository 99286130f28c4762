"""What `kubectl wait --for=condition=Ready` sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from reconciler.core.observation import Instance, Pending, TargetState
from reconciler.core.plan import Action, Blocked, Change, FieldChange, ObjectName
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.objects import id_of
from reconciler.kube.running.instances import instances
from reconciler.kube.status.due import FEW, DueStatuses, StatusNews, stood_long_s, takes_a_while
from reconciler.kube.status.reporter import ClusterStatusWriter
from reconciler.kube.status.status import node_status, service_status
from reconciler.kube.status.view import ClusterView
from reconciler.loop.desired import Desired
from tests.support.builders import instance
from tests.support.cluster_views import (
    CLUSTER,
    deployment,
    desired,
    fleet,
    job,
    live_service,
    network_service,
    nothing_to_do,
    pod,
    service_ref,
    view,
)
from tests.support.few_objects import FewObjects

NOW = "2026-01-02T00:00:00Z"
CHAT = desired(fleet(chat={}))
ON_MAC = desired(fleet(chat={"placement": {"nodes": ["mac"]}}))


def said(of: ClusterView, live: dict[str, Any] | None = None) -> dict[str, Any]:
    return service_status(of, live or live_service(), NOW)


def condition(status: dict[str, Any], kind: str) -> tuple[str, str] | None:
    found = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    return found.get(kind)


def change(action: Action = Action.UPDATE, **overrides: Any) -> Change:
    values: dict[str, Any] = {
        "target": "cluster/prod",
        "ref": service_ref(),
        "reason": "SettingsChanged",
        "source": None,
    }
    return Change(action, **values | overrides)


def mac(**overrides: Any) -> Instance:
    return instance("chat", ON_MAC.assignment.workloads[0], **overrides)


def test_a_service_whose_pods_are_ready_is_ready_for_the_generation_that_was_looked_at() -> None:
    status = said(view(CHAT, deployment(), network_service()), live_service(generation=4))

    assert {k: v for k, v in status.items() if k != "conditions"} == {
        "observedGeneration": 4,
        "observedRevision": CHAT.fleet.revision,
        "endpoint": "http://chat.default.svc:8080/v1/chat/completions",
        "advertisedModels": ["gemma"],
        "placements": [
            {
                "node": "l4",
                "cluster": "prod",
                "target": "cluster/prod",
                "ready": True,
                "replicas": 1,
                "readyReplicas": 1,
                "reason": "Ready",
            }
        ],
        "replicas": 1,
        "readyReplicas": 1,
        "selector": "app=chat,inference.llmkube.dev/inference-service=chat",
    }
    assert {(c["type"], c["status"], c["reason"]) for c in status["conditions"]} == {
        ("Ready", "True", "Ready"),
        ("Placed", "True", "Placed"),
        ("MemoryFits", "Unknown", "MemoryUnknown"),
        ("ModelsReady", "True", "ModelsPresent"),
        ("Drifted", "False", "NothingDrifted"),
    }
    assert {c["observedGeneration"] for c in status["conditions"]} == {4}


def test_a_claim_that_is_kept_for_its_data_leaves_the_service_ready() -> None:
    kept = Blocked(service_ref(), "Guarded", "claim", None, holds=(), token="prune-1")

    status = said(view(CHAT, deployment(), plan=nothing_to_do(CHAT, blocked=(kept,))))

    assert condition(status, "Ready") == ("True", "Ready")
    assert condition(status, "Stalled") is None


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((), "Progressing"),
        ((deployment(ready=0),), "ReplicasNotReady"),
        ((deployment(observedGeneration=0),), "GenerationNotObserved"),
        ((deployment(updatedReplicas=0),), "Updating"),
        ((deployment(replicas=2),), "OldReplicas"),
    ],
)
def test_a_deployment_on_its_way_makes_a_service_reconcile(
    objects: tuple[dict[str, Any], ...], reason: str
) -> None:
    status = said(view(CHAT, *objects))

    assert condition(status, "Ready") == ("False", reason)
    assert condition(status, "Reconciling") == ("True", "Progressing")
    assert condition(status, "Stalled") is None


def test_a_generation_that_the_revision_was_not_made_from_is_not_called_observed() -> None:
    older = view(CHAT, deployment(), generations={service_ref(): 3})

    status = said(older, live_service(generation=4))

    assert status["observedGeneration"] == 3
    assert {c["observedGeneration"] for c in status["conditions"]} == {3}


def test_a_download_that_failed_stalls_the_service_with_what_its_pod_said() -> None:
    told = '{"reason": "DownloadFailed", "message": "404 from models.test"}'
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": told}}
    failed = pod("chat", "Job", containerStatuses=[{"name": "fetch", "state": ended}])

    status = said(
        view(
            CHAT,
            deployment(ready=0),
            job(type="Failed", reason="BackoffLimitExceeded"),
            pods={service_ref(): (failed,)},
        )
    )

    assert condition(status, "ModelsReady") == ("False", "DownloadFailed")
    assert condition(status, "Ready") == ("False", "DownloadFailed")
    assert condition(status, "Stalled") == ("True", "DownloadFailed")
    assert "404 from models.test" in status["conditions"][0]["message"]


@pytest.mark.parametrize("since", ["just now", "past the Deployment's deadline"])
def test_a_download_on_its_way_is_said_before_the_pods_that_wait_for_it(since: str) -> None:
    late = {"type": "Progressing", "reason": "ProgressDeadlineExceeded"}
    status = {} if since == "just now" else {"conditions": [late]}

    status = said(view(CHAT, deployment(ready=0, **status), job()))

    assert condition(status, "ModelsReady") == ("False", "ModelsPending")
    assert condition(status, "Ready") == ("False", "ModelsPending")
    assert condition(status, "Stalled") is None


def test_a_job_that_failed_after_the_model_was_there_says_nothing_of_a_service_that_answers() -> (
    None
):
    status = said(view(CHAT, deployment(), job(type="Failed", reason="DeadlineExceeded")))

    assert condition(status, "Ready") == ("True", "Ready")
    assert condition(status, "ModelsReady") == ("True", "ModelsPresent")


@pytest.mark.parametrize("told", [(), ("ErrImagePull",)], ids=["alone", "its pod knows why"])
def test_a_deployment_past_its_deadline_stalls_the_service(told: tuple[str, ...]) -> None:
    late = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    pods = tuple(
        pod("chat", containerStatuses=[{"name": "engine", "state": {"waiting": {"reason": word}}}])
        for word in told
    )

    status = said(view(CHAT, deployment(ready=0, conditions=[late]), pods={service_ref(): pods}))

    reason = (*told, "ProgressDeadlineExceeded")[0]
    assert condition(status, "Ready") == ("False", reason)
    assert condition(status, "Stalled") == ("True", reason)
    assert condition(status, "Reconciling") is None


def test_a_pod_that_cannot_start_says_why() -> None:
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    stuck = pod("chat", containerStatuses=[{"name": "engine", "state": waits}])

    status = said(view(CHAT, deployment(ready=0), pods={service_ref(): (stuck,)}))

    assert condition(status, "Ready") == ("False", "ImagePullBackOff")


@pytest.mark.parametrize("held_by", ["itself", "its model"])
def test_a_blocked_service_is_stalled_with_the_reason(held_by: str) -> None:
    ref = service_ref() if held_by == "itself" else service_ref("other")
    blocked = Blocked(ref, "MemoryFits", "24 GiB of 22", None, holds=(service_ref(),))
    plan = nothing_to_do(CHAT, blocked=(blocked,))

    status = said(view(CHAT, deployment(), plan=plan))

    assert condition(status, "Ready") == ("False", "MemoryFits")
    assert condition(status, "Stalled") == ("True", "MemoryFits")
    assert condition(status, "MemoryFits") == ("False", "MemoryFits")
    assert condition(status, "Reconciling") is None


def test_a_service_with_a_step_to_go_is_not_ready_although_its_pods_are() -> None:
    status = said(view(CHAT, deployment(), plan=nothing_to_do(CHAT, changes=(change(),))))

    assert condition(status, "Ready") == ("False", "SettingsChanged")
    assert condition(status, "Reconciling") == ("True", "SettingsChanged")


def test_a_render_difference_that_waits_leaves_it_ready() -> None:
    deferred = change(Action.DEFERRED, reason="RenderChanged")

    status = said(view(CHAT, deployment(), plan=nothing_to_do(CHAT, changes=(deferred,))))

    assert condition(status, "Ready") == ("True", "Ready")
    assert condition(status, "Reconciling") is None


def test_drift_of_an_object_is_named_by_its_field_and_never_by_a_value() -> None:
    secret = FieldChange("spec.template.spec.containers[0].env", "s3cret", "other", True)
    drifted = change(
        Action.DRIFT,
        reason="DriftedByOther",
        object=ObjectName("apps/v1", "Deployment", "default", "chat"),
        fields=(secret,),
        message="s3cret -> other: back",
        by="kubectl-edit",
    )

    status = said(view(CHAT, deployment(), plan=nothing_to_do(CHAT, changes=(drifted,))))

    assert condition(status, "Drifted") == ("True", "DriftedByOther")
    assert condition(status, "Ready") == ("True", "Ready")  # the Deployment answers
    assert "containers[0].env by kubectl-edit" in str(status)
    assert "s3cret" not in str(status)


def test_what_an_autoscaler_may_set_is_no_drift() -> None:
    shown = change(
        Action.DRIFT,
        reason="DriftShown",
        object=ObjectName("apps/v1", "Deployment", "default", "chat"),
        fields=(FieldChange("spec.replicas", 3, 1, forces_restart=False),),
        by="kube-controller-manager",
    )

    status = said(view(CHAT, deployment(), plan=nothing_to_do(CHAT, changes=(shown,))))

    assert condition(status, "Drifted") == ("False", "NothingDrifted")
    assert "a controller sets: spec.replicas by kube-controller-manager" in str(status)
    assert condition(status, "Ready") == ("True", "Ready")


@pytest.mark.parametrize(
    ("kind", "said_of_it"),
    [("Deployment", ("Unknown", "NothingThere")), ("Job", ("False", "NothingDrifted"))],
)
def test_what_is_not_there_yet_is_not_said_to_be_as_declared(
    kind: str, said_of_it: tuple[str, str]
) -> None:
    new = change(Action.CREATE, object=ObjectName("apps/v1", kind, "default", "chat"))

    status = said(view(CHAT, plan=nothing_to_do(CHAT, changes=(new,))))

    assert condition(status, "Drifted") == said_of_it


def test_drift_of_the_document_itself_makes_it_not_ready() -> None:
    plan = nothing_to_do(CHAT, changes=(change(Action.DRIFT, reason="Drifted"),))

    status = said(view(CHAT, deployment(), plan=plan))

    assert condition(status, "Ready") == ("False", "Drifted")


def test_a_refused_object_is_said_with_the_servers_words() -> None:
    status = said(view(CHAT, deployment(), failed={service_ref(): "quota exceeded"}))

    assert condition(status, "Ready") == ("False", "ApplyFailed")
    assert condition(status, "Reconciling") == ("True", "ApplyFailed")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "chat/completions"),
        ({"chat": False}, "completions"),
        ({"runtimeOptions": {"embeddings": True}}, "embeddings"),
    ],
)
def test_an_endpoint_ends_in_what_clients_may_ask(spec: dict[str, Any], path: str) -> None:
    status = said(view(desired(fleet(chat=spec)), deployment(), network_service()))

    assert status["endpoint"] == f"http://chat.default.svc:8080/v1/{path}"


@pytest.mark.parametrize(
    ("on", "is_said"),
    [(CHAT, False), (ON_MAC, True)],
    ids=["pods whose Deployment was refused", "a node with an agent"],
)
def test_a_service_without_a_deployment_has_an_endpoint_only_where_no_pods_are_to_answer(
    on: Desired, *, is_said: bool
) -> None:
    status = said(view(on, network_service()))

    assert ("endpoint" in status) is is_said


def test_a_suspended_service_is_not_ready_and_nothing_is_on_its_way() -> None:
    asleep = desired(fleet(chat={"suspend": True}))

    status = said(view(asleep))

    assert condition(status, "Ready") == ("False", "Suspended")
    assert condition(status, "Reconciling") is None
    assert status["placements"] == []


def test_a_service_without_a_node_is_not_placed() -> None:
    status = said(view(CHAT), live_service("gone"))

    assert condition(status, "Placed") == ("False", "NoNode")
    assert condition(status, "Ready") == ("False", "NoNode")


def test_a_service_of_an_agent_is_as_the_agent_says_over_http() -> None:
    found = mac(endpoint="http://192.168.1.50:20000")

    status = said(view(ON_MAC, instances=(found,)))

    assert condition(status, "Ready") == ("True", "Ready")
    assert status["endpoint"] == "http://192.168.1.50:20000/v1/chat/completions"


def test_an_update_that_waits_for_its_model_says_why_in_the_conditions() -> None:
    waits = Pending("DownloadFailed", "models.test gives 404")
    found = mac(inputs_digest="older", pending=waits)
    step = change(Action.REPLACE, target="node/mac", reason="ModelChanged")

    status = said(view(ON_MAC, instances=(found,), plan=nothing_to_do(ON_MAC, changes=(step,))))

    assert condition(status, "Ready") == ("False", "DownloadFailed")
    assert condition(status, "Reconciling") == ("True", "DownloadFailed")
    ready, reconciling = (c for c in status["conditions"] if c["type"] in ("Ready", "Reconciling"))
    for told in (ready, reconciling, status["placements"][0]):
        assert "models.test gives 404" in told["message"]


def test_an_agent_that_runs_an_older_revision_does_not_make_the_newer_one_ready() -> None:
    found = mac(inputs_digest="older")

    assert condition(said(view(ON_MAC, instances=(found,))), "Ready") == (
        "False",
        "SettingsChanged",
    )


@pytest.mark.parametrize(
    ("lease", "ready"),
    [
        (LeaseState.RENEWED, ("True", "Ready")),
        (LeaseState.STALE, ("Unknown", "AgentSilent")),
        (None, ("Unknown", "NotReachable")),
    ],
)
def test_an_agents_own_entry_counts_while_its_lease_is_renewed(
    lease: LeaseState | None, ready: tuple[str, str]
) -> None:
    digest = ON_MAC.assignment.workloads[0].inputs_digest
    entry = {"node": "mac", "ready": True, "inputsDigest": digest}
    silent = nothing_to_do(ON_MAC, targets={"node/mac": TargetState("node/mac", reachable=False)})

    status = said(
        view(ON_MAC, plan=silent, leases={"mac": lease} if lease else {}),
        live_service(instances=[entry]),
    )

    assert condition(status, "Ready") == ready


def test_the_same_view_says_the_same_a_day_later() -> None:
    of = view(CHAT, deployment(), network_service())
    first = said(of)

    again = service_status(of, live_service(**first), "2026-01-03T00:00:00Z")

    assert again == first


def test_a_node_is_told_all_that_it_shall_run_and_what_is_held_there_as_it_was() -> None:
    plan = nothing_to_do(ON_MAC, blocked=(Blocked(service_ref("held"), "MemoryFits", "", None),))
    before = [
        {"namespace": "default", "name": name, "inputsDigest": "x"} for name in ("held", "old")
    ]
    live = {"metadata": {"name": "mac"}, "status": {"desired": {"services": before}}}

    desired_list = node_status(view(ON_MAC, live_service(generation=2), plan=plan), live, NOW)[
        "desired"
    ]

    assert desired_list["revision"] == ON_MAC.fleet.revision
    assert desired_list["services"] == [
        {
            "namespace": "default",
            "name": "chat",
            "inputsDigest": ON_MAC.assignment.workloads[0].inputs_digest,
            "generation": 2,
        },
        {"namespace": "default", "name": "held", "inputsDigest": "x"},
    ]


AS_IT_IS = (live_service(), deployment(), network_service())
OTHERWISE = {
    "its Deployment": view(CHAT, live_service(), deployment(ready=0), network_service()),
    "its Service": view(CHAT, live_service(), deployment()),
    "its Job": view(CHAT, *AS_IT_IS, job(Failed="True")),
    "its document": view(CHAT, live_service(generation=2), deployment(), network_service()),
    "its plan": view(CHAT, *AS_IT_IS, plan=nothing_to_do(CHAT, changes=(change(),))),
    "what failed": view(CHAT, *AS_IT_IS, failed={service_ref(): "no quota"}),
    "what was looked at": view(CHAT, *AS_IT_IS, generations={service_ref(): 7}),
    "its pods": view(CHAT, *AS_IT_IS, pods={service_ref(): (pod(),)}),
}


@pytest.mark.parametrize("other", OTHERWISE.values(), ids=OTHERWISE)
def test_a_status_has_other_grounds_once_anything_that_it_tells_of_changes(
    other: ClusterView,
) -> None:
    before, again = (view(CHAT, *AS_IT_IS).grounds(service_ref()) for _ in range(2))

    assert before is not None
    assert before == again != other.grounds(service_ref())


def test_a_status_that_tells_of_a_node_is_made_each_time() -> None:
    assert view(ON_MAC, live_service()).grounds(service_ref()) is None
    assert view(CHAT).grounds(service_ref("gone")) is None


@pytest.mark.parametrize(
    ("lease", "reachable", "ready"),
    [
        (LeaseState.RENEWED, False, ("True", "AgentHeard")),
        (LeaseState.STALE, False, ("Unknown", "AgentSilent")),
        (LeaseState.STALE, True, ("True", "AgentHeard")),
        (None, True, ("True", "AgentHeard")),
        (None, False, ("Unknown", "NotReachable")),
    ],
)
def test_a_node_is_ready_while_its_agent_is_heard(
    lease: LeaseState | None, reachable: bool, ready: tuple[str, str]
) -> None:
    state = TargetState("node/mac", reachable=reachable)
    plan = nothing_to_do(ON_MAC, targets={"node/mac": state})
    live = {"metadata": {"name": "mac", "generation": 1}}

    status = node_status(view(ON_MAC, plan=plan, leases={"mac": lease} if lease else {}), live, NOW)

    assert condition(status, "Ready") == ready


CROWD_S = stood_long_s(FEW + 2)


@pytest.mark.parametrize(
    ("stood_s", "told"),
    [
        ([0.0] * FEW, range(FEW)),
        ([0.0] * (FEW + 1), []),
        ([0.0] * FEW + [CROWD_S, CROWD_S + 1], [FEW + 1, FEW]),
        ([CROWD_S + n for n in range(FEW + 1)], range(FEW, -1, -1)),
        ([CROWD_S + n / 1000 for n in range(1000)], []),
    ],
    ids=["few", "a crowd", "some of it stands", "all of it stands", "a large one has longer"],
)
def test_in_a_crowd_it_is_said_first_what_serves_and_then_what_has_stood_longest(
    stood_s: list[float], told: Iterable[int]
) -> None:
    news = [
        StatusNews(service_ref(str(n)), (), is_urgent=False, stood_s=s)
        for n, s in enumerate(stood_s)
    ]
    urgent = StatusNews(service_ref("turns"), (), is_urgent=True)

    due = DueStatuses.of([*news, urgent])

    assert due == DueStatuses((urgent,), tuple(news[n] for n in told))


def test_however_large_a_crowd_is_all_that_stands_is_said() -> None:
    assert stood_long_s(100) < stood_long_s(1_000) < stood_long_s(1_000_000) <= 60


@pytest.mark.parametrize(
    ("ready", "said", "generation", "told"),
    [
        (1, None, 1, True),
        (0, 1, 1, True),
        (0, 1, 2, False),  # what it says is of the past, and says so
        (1, 1, 2, True),
        (1, 1, 1, False),
        (0, None, 1, False),
    ],
)
def test_that_a_service_begins_or_ceases_to_serve_waits_for_no_crowd(
    ready: int, said: int | None, generation: int, told: bool
) -> None:
    names = [f"s{n}" for n in range(FEW + 2)]
    conditions = [{"type": "Ready", "status": "True", "observedGeneration": said}] if said else []
    lives = {service_ref(name): live_service(name) for name in names}
    lives[service_ref("s0")] = live_service("s0", generation, conditions=conditions)
    pods = [deployment(name, ready=ready if name == "s0" else 0) for name in names]
    running = instances(f"cluster/{CLUSTER}", {id_of(live): live for live in pods}, {}, {})
    of = view(
        desired(fleet(**{name: {} for name in names})), *pods, *lives.values(), instances=running
    )
    with FewObjects() as server:
        writer = ClusterStatusWriter(server.api, lambda: True, "me", stays=True)

        entries = [entry.live["metadata"]["name"] for entry in writer.entries(of, lives)]

    assert entries == (["s0"] if told else [])


@pytest.mark.parametrize(("others", "is_large"), [(FEW, False), (FEW + 1, True)])
def test_what_serves_is_said_before_a_large_plan_is_applied(others: int, is_large: bool) -> None:
    names = ["ready", "changes", "waits", *(f"s{n}" for n in range(others - 1))]
    lives = {service_ref(name): live_service(name) for name in names}
    pods = [deployment(name, ready=1 if name in ("ready", "changes") else 0) for name in names]
    running = instances(f"cluster/{CLUSTER}", {id_of(live): live for live in pods}, {}, {})
    meant = desired(fleet(**{name: {} for name in names}))
    named = [ObjectName("apps/v1", "Deployment", "default", n) for n in (names[1], *names[3:])]
    changes = tuple(change(ref=service_ref(each.name), object=each) for each in named)
    plan = nothing_to_do(meant, changes=changes)
    of = view(meant, *pods, *lives.values(), instances=running, plan=plan)
    with FewObjects() as server:
        writer = ClusterStatusWriter(server.api, lambda: True, "me", stays=True)

        entries = [entry.live["metadata"]["name"] for entry in writer.served(of, lives)]

    assert takes_a_while(plan, CLUSTER) is is_large
    assert entries == ["ready"]


def test_a_crowd_that_stands_is_said_a_part_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.kube.status.due.stood_long_s", lambda crowd: 0.0)
    monkeypatch.setattr("reconciler.kube.status.reporter.PATIENT_S", 0.0)
    names = [f"s{n}" for n in range(FEW + 2)]
    lives = {service_ref(name): live_service(name) for name in names}
    of = view(desired(fleet(**{name: {} for name in names})), *lives.values())
    with FewObjects() as server:
        writer = ClusterStatusWriter(server.api, lambda: True, "me", stays=True)

        entries = list(writer.entries(of, lives))

        assert 1 <= len(entries) < len(names)
        assert writer.is_behind, "another pass comes soon"
