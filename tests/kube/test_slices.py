"""Services of agent nodes as a cluster finds them, and the Lease of a node: pure tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance
from reconciler.kube.endpoints.heartbeat import (
    STALE_S,
    LeaseState,
    LeaseWriter,
    lease_manifest,
    lease_state,
    writer,
)
from reconciler.kube.endpoints.slices import (
    NODE_LABEL,
    Unpublished,
    is_of,
    published,
    slice_name,
    slice_of,
    stale_slices,
    unroutable,
)
from reconciler.loop.desired import Desired, no_facts
from tests.support.fleets import MemoryCheckout, load_texts, model, node, service

CHAT = ObjectRef("InferenceService", "default", "chat")


def _instance(host: str | None = "192.0.2.7", **changed: Any) -> Instance:
    listen = {"listen": {"expose": "open", "host": host}} if host else {}
    made = Instance(
        ref=CHAT,
        target="node/mac",
        runtime="llama-server",
        inputs=listen,
        inputs_digest="d",
        render_digest=None,
        source=None,
        ready=True,
        reason="Ready",
        port=20001,
    )
    return replace(made, **changed)


def _desired(*texts: str) -> Desired:
    loaded = load_texts(*texts)
    assert loaded.fleet is not None
    return Desired.of(MemoryCheckout({}), loaded, loaded.fleet, no_facts)


def _slice(**changed: Any) -> dict[str, Any]:
    made = slice_of(_instance(**changed))
    assert not isinstance(made, Unpublished)
    return dict(made)


def test_a_service_on_a_published_node_has_a_service_without_a_selector() -> None:
    here = node("mac", agent={"hostIP": "192.0.2.7", "expose": "open", "clusters": ["prod"]})
    desired = _desired(here, model(), service("chat.v1"))

    (made,) = published(desired, "prod")

    assert made["metadata"]["name"] == "chat-v1"
    assert made["spec"] == {
        "type": "ClusterIP",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }
    assert published(desired, "other") == ()


def test_its_port_and_type_are_those_that_the_service_states() -> None:
    here = node("mac", agent={"clusters": ["prod"]})
    stated = service("chat", endpoint={"port": 9000, "type": "NodePort"}, suspend=True)

    (made,) = published(_desired(here, model(), stated), "prod")

    assert (made["spec"]["type"], made["spec"]["ports"][0]["port"]) == ("NodePort", 9000)


def test_a_slice_has_the_address_and_port_of_the_process() -> None:
    made = _slice()

    assert made["addressType"] == "IPv4"
    assert made["metadata"]["name"] == "chat-mac"
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "chat"
    assert made["metadata"]["labels"][NODE_LABEL] == "mac"
    assert made["endpoints"][0]["addresses"] == ["192.0.2.7"]
    assert made["ports"] == [{"name": "http", "port": 20001, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("changed", "ready"),
    [({}, True), ({"ready": False}, False), ({"gone": True}, False)],
)
def test_an_endpoint_is_ready_while_its_process_is(changed: dict[str, Any], ready: bool) -> None:
    conditions = _slice(**changed)["endpoints"][0]["conditions"]

    assert conditions == {"ready": ready, "serving": ready, "terminating": False}


def test_an_address_of_the_other_family_is_said_to_be_one() -> None:
    assert _slice(host="fd00::7")["addressType"] == "IPv6"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"host": None}, "NotExposed"),
        ({"host": "127.0.0.2"}, "NotExposed"),
        ({"host": "169.254.1.1"}, "NotExposed"),
        ({"host": "::"}, "NotExposed"),
        ({"port": None}, "NoPort"),
        ({"ref": ObjectRef("InferenceService", "default", "x" * 64)}, "NameTooLong"),
    ],
)
def test_what_nobody_in_the_cluster_can_reach_has_no_slice_and_a_reason(
    changed: dict[str, Any], reason: str
) -> None:
    made = slice_of(_instance(**changed))

    assert isinstance(made, Unpublished)
    assert made.reason == reason


def test_a_slice_of_the_same_name_may_be_another_ones() -> None:
    assert slice_name("a-b", "c") == slice_name("a", "b-c")
    assert is_of(_slice(), CHAT, "mac")
    assert not is_of(_slice(), ObjectRef("InferenceService", "default", "chat-mac"), "")


def test_the_endpoints_of_a_silent_node_are_withdrawn_once() -> None:
    live = _slice()
    live["metadata"] |= {"resourceVersion": "7", "managedFields": [{}]}

    (withdrawn,) = stale_slices([live], ["mac", "other"])

    assert withdrawn["endpoints"][0]["conditions"]["ready"] is False
    assert withdrawn["metadata"]["resourceVersion"] == "7"
    assert live["endpoints"][0]["conditions"]["ready"] is True
    assert stale_slices([withdrawn], ["mac"]) == ()
    assert stale_slices([live], ["other"]) == ()


@pytest.mark.parametrize("host", ["192.0.2.7", "10.0.0.1", "100.64.0.10", "fd00::1"])
def test_addresses_of_a_local_network_can_be_reached(host: str) -> None:
    assert unroutable(host) is None


@pytest.mark.parametrize(
    ("age_s", "state"), [(0.0, LeaseState.RENEWED), (STALE_S + 1, LeaseState.STALE)]
)
def test_a_lease_is_stale_when_it_was_not_renewed_for_too_long(
    age_s: float, state: LeaseState
) -> None:
    lease = lease_manifest("mac", "mac_1", 1000.0)

    assert lease_state(lease, 1000.0 + age_s) is state


def test_a_clock_that_is_wrong_there_makes_no_lease_stale() -> None:
    lease = lease_manifest("mac", "mac_1", 1000.0)

    assert lease_state(lease, 9000.0, changed_at=8990.0) is LeaseState.RENEWED
    assert lease_state(lease, 1000.0, changed_at=1000.0 - STALE_S - 1) is LeaseState.STALE


def test_a_lease_that_was_never_renewed_is_none() -> None:
    assert lease_state(None, 0.0) is LeaseState.NONE
    assert lease_state({"spec": {}}, 0.0) is LeaseState.NONE
    assert lease_state({"spec": {"renewTime": "yesterday"}}, 0.0) is LeaseState.STALE


@pytest.mark.parametrize(
    ("state", "answers", "who"),
    [
        (LeaseState.RENEWED, False, LeaseWriter.AGENT),
        (LeaseState.RENEWED, True, LeaseWriter.AGENT),
        (LeaseState.STALE, True, LeaseWriter.RECONCILER),
        (LeaseState.STALE, False, LeaseWriter.NOBODY),
        (LeaseState.NONE, True, LeaseWriter.RECONCILER),
        (LeaseState.NONE, False, LeaseWriter.NOBODY),
    ],
)
def test_a_slice_has_one_writer_at_a_time(
    state: LeaseState, answers: bool, who: LeaseWriter
) -> None:
    assert writer(state, answers=answers) is who
