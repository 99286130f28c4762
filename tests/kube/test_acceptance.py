"""What Gateways and KEDA say of the objects that we write for them."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, id_of
from reconciler.kube.running.acceptance import of_others, starts_none, unaccepted, unaccepted_note
from reconciler.kube.status.status import service_status
from tests.support.cluster_views import child, desired, fleet, live_service, scaled_object, view

PUBLIC = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}
BROKEN = "Triggers defined in ScaledObject are not working correctly"
FROM_PODS = {"type": "metrics-api", "metadata": {"aggregateFromKubeServiceEndpoints": "true"}}
READY = {"status": "True", "reason": "ScaledObjectReady", "message": "is ready"}
FAILS = {"status": "False", "reason": "TriggerError", "message": BROKEN}


CHECK_FAILED = FAILS | {"reason": "ScaledObjectCheckFailed"}
NO_METRICS = "FailedGetExternalMetric"
AT_ZERO = {"status": "True", "reason": "ScalingDisabled", "message": "the replica count is zero"}
NO_NUMBER = {"status": "False", "reason": NO_METRICS, "message": "HPA is not actively scaling: ..."}


def of_pods(ready: dict[str, str], scaler: dict[str, str] | None = None) -> Manifest:
    """One with a trigger that reads the service's own pods; what KEDA says of its autoscaler."""
    made = scaled_object(**ready)
    made["spec"] = {"triggers": [FROM_PODS]}
    made["status"]["conditions"] += [{"type": "HPAActive", **scaler}] if scaler else []
    return made


def condition(kind: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "status": "False", "reason": reason, "message": message, **more}


def route(*conditions: dict[str, Any], wanted: dict[str, Any] = PUBLIC, **said: Any) -> Manifest:
    made = child("HTTPRoute", "gateway.networking.k8s.io/v1")
    made["spec"] = {"parentRefs": [wanted]}
    parent = {"controllerName": "a/b", "parentRef": PUBLIC, "conditions": [*conditions], **said}
    made["status"] = {"parents": [parent]}
    return made


def paused(note: str, value: str) -> Manifest:
    made = scaled_object(**READY)
    made["metadata"]["annotations"] = {f"autoscaling.keda.sh/{note}": value}
    return made


NO_HOST = condition("Accepted", "NoMatchingListenerHostname", "no listener has it")
NO_BACKEND = condition("ResolvedRefs", "BackendNotFound", "there is no Service chat-next")
ROUTES = {
    "accepted": (route({"type": "Accepted", "status": "True"}), ""),
    "refused": (route(NO_HOST), "public: NoMatchingListenerHostname: no listener has it"),
    "refused without a word": (
        route(NO_HOST | {"message": ""}),
        "public: NoMatchingListenerHostname",
    ),
    "without its backend": (
        route(NO_HOST, NO_BACKEND),
        "public: NoMatchingListenerHostname: no listener has it;"
        " public: BackendNotFound: there is no Service chat-next",
    ),
    "of an older generation": (route(NO_HOST | {"observedGeneration": 0}), ""),
    "of this generation": (
        route(NO_HOST | {"observedGeneration": 1}),
        "public: NoMatchingListenerHostname: no listener has it",
    ),
    "in words of its namespace": (
        route(parentRef=PUBLIC | {"namespace": "default", "group": "gateway.networking.k8s.io"}),
        "",
    ),
    "at another listener": (
        route(wanted=PUBLIC | {"sectionName": "https"}),
        "no controller has taken it up for Gateway public",
    ),
    "in another namespace": (
        route(wanted=PUBLIC | {"namespace": "gateways"}),
        "no controller has taken it up for Gateway public",
    ),
}


@pytest.mark.parametrize("case", ROUTES)
def test_a_route_is_accepted_by_each_gateway_that_it_names(case: str) -> None:
    live, says = ROUTES[case]

    assert unaccepted(live) == says


@pytest.mark.parametrize(
    ("live", "says", "starts"),
    [
        (scaled_object(**READY), "", True),
        (scaled_object(), "KEDA has not looked at it; is its operator running?", False),
        (scaled_object(**FAILS), f"TriggerError: {BROKEN}", False),
        (of_pods(FAILS, AT_ZERO), "", True),
        (of_pods(FAILS), f"TriggerError: {BROKEN}", True),
        (of_pods(CHECK_FAILED, AT_ZERO), f"ScaledObjectCheckFailed: {BROKEN}", False),
        (
            of_pods(READY, NO_NUMBER),
            f"its HorizontalPodAutoscaler gets no number: {NO_METRICS}",
            True,
        ),
    ],
)
def test_a_scaled_object_does_what_it_says_if_keda_can_ask_its_triggers(
    live: Manifest, says: str, starts: bool
) -> None:
    assert unaccepted(live) == says
    assert starts_none(live) == ("" if starts else f"of its ScaledObject, {says}")


@pytest.mark.parametrize(
    ("note", "value", "is_paused"),
    [
        ("paused", "true", True),
        ("paused", "", True),  # KEDA takes all for true that is no truth
        ("paused", "False", False),
        ("paused-replicas", "0", True),
        ("paused-replicas", "false", True),
        ("paused-scale-out", "true", True),
        ("paused-scale-in", "true", False),
    ],
)
def test_a_paused_one_starts_nothing(note: str, value: str, is_paused: bool) -> None:
    live = paused(note, value)

    assert bool(starts_none(live)) is is_paused
    assert unaccepted(live) == "", "people paused it"


def test_what_is_deleted_and_stays_is_said_with_what_it_waits_for() -> None:
    """As where KEDA is uninstalled before its objects are gone."""
    live = scaled_object(**READY)
    live["metadata"] |= {"deletionTimestamp": "2026-01-02T00:00:00Z"}

    assert unaccepted(live) == ""
    live["metadata"]["finalizers"] = ["finalizer.keda.sh"]
    assert unaccepted(live) == (
        "it is being deleted and waits for finalizer.keda.sh; is its controller running?"
    )
    assert starts_none(live) == "its ScaledObject is being deleted"


def test_many_reasons_are_counted() -> None:
    routes = [route(NO_HOST | {"message": f"of {n}"}) for n in range(5)]
    for n, each in enumerate(routes):
        each["metadata"]["name"] = f"chat-{n}"
    objects = ObjectSet({id_of(each): each for each in routes})

    note = unaccepted_note(objects, of_others(objects))

    assert note.endswith("of 2; and 2 other reasons")


def test_a_pool_is_refused_by_a_gateway_and_needs_none() -> None:
    pool = child("InferencePool", "inference.networking.k8s.io/v1")
    refused = {**pool, "status": {"parents": [{"parentRef": PUBLIC, "conditions": [NO_BACKEND]}]}}

    assert unaccepted(pool) == ""
    assert unaccepted(refused) == "public: BackendNotFound: there is no Service chat-next"


def test_what_is_not_accepted_is_said_of_the_service_and_once_of_many() -> None:
    chats = [f"chat-{n}" for n in range(5)]
    scalers = [scaled_object(of=name) for name in chats]
    objects = ObjectSet({id_of(each): each for each in (*scalers, route(NO_HOST))})
    want = desired(fleet(chat={}))

    refused, accepted = (
        service_status(view(want, *lives), live_service(), "2026-01-02T00:00:00Z")["conditions"]
        for lives in ((route(NO_HOST), scaled_object()), (scaled_object(**READY),))
    )

    assert unaccepted_note(objects, of_others(objects)) == (
        "ScaledObject default/chat-0, default/chat-1, default/chat-2 and 2 more: KEDA has not"
        " looked at it; is its operator running?; HTTPRoute default/chat: public:"
        " NoMatchingListenerHostname: no listener has it"
    )
    (said,) = (c for c in refused if c["type"] == "ObjectsAccepted")
    assert (said["status"], said["reason"]) == ("False", "NotAccepted")
    assert said["message"].startswith("HTTPRoute: public: NoMatchingListenerHostname")
    assert "ScaledObject: KEDA has not looked at it" in said["message"]
    assert "ObjectsAccepted" not in {c["type"] for c in accepted}


@pytest.mark.parametrize(
    "status",
    [None, {"conditions": "x"}, {"conditions": [1]}, {"parents": [1, {"parentRef": None}]}],
)
def test_a_status_that_is_none_breaks_nothing(status: Any) -> None:
    for live in (route(), scaled_object(), child("InferencePool", "x/v1")):
        assert isinstance(unaccepted({**live, "status": status}), str)


def test_what_others_write_is_cut_and_one_line() -> None:
    said = unaccepted(route(NO_HOST | {"message": "a\n\tb" + "x" * 2000}))

    assert len(said) == 300
    assert "a b" in said
