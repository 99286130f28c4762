"""What a real API server is told of a pass, and what kubectl makes of it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from typing import Any

import pytest

from reconciler.kube.client.api import ApiServer
from reconciler.kube.event_note import EventNote
from reconciler.kube.objects import MANAGER, ObjectId
from reconciler.kube.status.events import MOST_AT_ONCE, EventWriter
from reconciler.kube.status.status import NODE_FIELDS, SERVICE_FIELDS, node_status, service_status
from reconciler.kube.status.view import ClusterView
from reconciler.kube.status.writer import DesiredStatus, StatusWriter
from tests.support.cluster import Cluster
from tests.support.cluster_views import (
    deployment,
    desired,
    fleet,
    network_service,
    service_ref,
    view,
)
from tests.support.crds import small
from tests.support.wait import PATIENCE_S

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

ON_L4 = desired(fleet(chat={}))
ON_MAC = desired(fleet(chat={"placement": {"nodes": ["mac"]}}))
CHAT = ObjectId("inference.llmkube.dev", "InferenceService", "default", "chat")
NOW = "2026-01-01T00:00:00Z"
MAC = ObjectId("inference.llmkube.dev", "FleetNode", "", "mac")


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def api(cluster: Cluster) -> ApiServer:
    cluster.apply(*small("chat"))
    return cluster.client()


def live(api: ApiServer, oid: ObjectId = CHAT) -> dict[str, Any]:
    found = api.get(oid)
    assert found is not None
    return found


def tell(api: ApiServer, of: ClusterView) -> int:
    found, now = live(api), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry = DesiredStatus(found, service_status(of, found, now), SERVICE_FIELDS)
    return StatusWriter(api).write([entry])


def test_a_status_is_written_once_and_not_again(api: ApiServer) -> None:
    of = view(ON_L4, deployment(), network_service())

    assert [tell(api, of), tell(api, of), tell(api, of)] == [1, 0, 0]

    said = live(api)["status"]
    assert said["endpoint"].endswith("/v1/chat/completions")
    assert said["advertisedModels"] == ["gemma"]


def test_a_revision_that_changes_nothing_of_a_service_writes_no_status(api: ApiServer) -> None:
    tell(api, view(ON_L4, deployment()))
    later = replace(ON_L4, fleet=replace(ON_L4.fleet, revision="later"))

    assert tell(api, view(later, deployment())) == 0

    assert live(api)["status"]["observedRevision"] == ON_L4.fleet.revision
    assert tell(api, view(later, deployment(ready=0))) == 1
    assert live(api)["status"]["observedRevision"] == "later"


def test_a_watch_that_is_behind_causes_no_second_write(api: ApiServer) -> None:
    writer, seen = StatusWriter(api), live(api)
    of = view(ON_L4, deployment())

    def entry(now: str) -> DesiredStatus:
        known = writer.current(seen)
        return DesiredStatus(known, service_status(of, known, now), SERVICE_FIELDS)

    wrote = [
        writer.write([entry("2026-01-01T00:00:00Z")]),
        writer.write([], are_all=False),
        writer.write([entry("2026-01-02T00:00:00Z")]),
    ]

    assert wrote == [1, 0, 0]


def test_each_writer_of_a_status_owns_its_own_fields(api: ApiServer) -> None:
    agents = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"},
        "status": {"instances": [{"node": "mac", "ready": True}]},
    }
    api.apply(agents, manager="fleet-agent", subresource="status")

    tell(api, view(ON_L4, deployment()))

    found = live(api)
    assert found["status"]["instances"] == [{"node": "mac", "ready": True}]
    owners = {
        entry["manager"]: set(entry["fieldsV1"]["f:status"])
        for entry in found["metadata"]["managedFields"]
        if entry.get("subresource") == "status"
    }
    assert owners["fleet-agent"] == {"f:instances"}
    assert "f:instances" not in owners[MANAGER]


def test_what_is_no_longer_so_is_withdrawn(api: ApiServer) -> None:
    tell(api, view(ON_L4, deployment(), network_service()))

    tell(api, view(ON_L4))

    said = live(api)["status"]
    assert "endpoint" not in said
    assert {c["type"] for c in said["conditions"]} >= {"Ready", "Reconciling"}

    tell(api, view(ON_L4, deployment()))

    assert "Reconciling" not in {c["type"] for c in live(api)["status"]["conditions"]}


def test_kubectl_waits_for_the_generation_that_is_asked_for(
    cluster: Cluster, api: ApiServer
) -> None:
    tell(api, view(ON_L4, deployment()))
    cluster.kubectl("wait", "isvc/chat", "--for=condition=Ready", f"--timeout={PATIENCE_S:g}s")

    patch = '{"spec": {"contextSize": 4096}}'
    cluster.kubectl("patch", "isvc", "chat", "--type=merge", "-p", patch)
    with pytest.raises(AssertionError, match="timed out"):
        cluster.kubectl("wait", "isvc/chat", "--for=condition=Ready", "--timeout=1s")

    words = ("wait", "isvc/chat", "--for=condition=Ready", f"--timeout={PATIENCE_S:g}s")
    own = ("--kubeconfig", cluster.kubeconfig, "--cache-dir", cluster.folder / "kubectl")
    program = (cluster.programs / "kubectl", *own, *words)
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as waits:
        tell(api, view(ON_L4, deployment()))
        assert waits.wait(PATIENCE_S) == 0


def test_a_status_edited_by_hand_is_ours_again_with_the_next_pass(
    cluster: Cluster, api: ApiServer
) -> None:
    of = view(ON_L4, deployment(), network_service())
    tell(api, of)
    before = live(api)["status"]["endpoint"]

    patch = '{"status": {"endpoint": "http://elsewhere"}}'
    cluster.kubectl("patch", "isvc", "chat", "--subresource=status", "--type=merge", "-p", patch)

    assert tell(api, of) == 1
    assert live(api)["status"]["endpoint"] == before


def test_a_node_is_told_its_list_beside_what_its_agent_says(api: ApiServer) -> None:
    agents = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "FleetNode",
        "metadata": {"name": "mac"},
        "status": {"observed": {"agentVersion": "1.0"}},
    }
    api.apply(agents, manager="fleet-agent", subresource="status")
    of = view(ON_MAC, live(api))

    found = live(api, MAC)
    wrote = StatusWriter(api).write(
        [DesiredStatus(found, node_status(of, found, NOW), NODE_FIELDS)]
    )

    said = live(api, MAC)["status"]
    assert wrote == 1
    assert said["observed"] == {"agentVersion": "1.0"}
    assert [(s["name"], s["generation"]) for s in said["desired"]["services"]] == [("chat", 1)]
    found = live(api, MAC)
    assert DesiredStatus(found, node_status(of, found, NOW), NODE_FIELDS).is_there


def test_an_object_that_was_made_anew_gets_no_status_meant_for_the_one_before(
    cluster: Cluster, api: ApiServer
) -> None:
    seen = live(api)
    cluster.kubectl("delete", "isvc", "chat")
    cluster.apply(*small("chat"))

    status = service_status(view(ON_L4, deployment()), seen, "2026-01-01T00:00:00Z")

    assert StatusWriter(api).write([DesiredStatus(seen, status, SERVICE_FIELDS)]) == 0
    assert "status" not in live(api)


def test_the_largest_status_is_taken_and_small(api: ApiServer) -> None:
    big = "x" * 100_000
    many = view(ON_L4, deployment(), failed={service_ref(): big})

    assert tell(api, many) == 1
    assert len(str(live(api)["status"])) < 10_000


def test_events_are_found_by_describe_and_the_same_twice_is_one(
    cluster: Cluster, api: ApiServer
) -> None:
    found = live(api)
    happened = EventNote(service_ref(), "DriftReverted", "Apply", "drift Deployment chat (a.b)")
    for _ in range(2):  # two lives of one program: each remembers for itself what it has written
        EventWriter(api, "pod-a_1").write([happened], {service_ref(): found})

    uid = found["metadata"]["uid"]
    events = cluster.json("get", "events.events.k8s.io")["items"]
    own = [e for e in events if e["regarding"].get("uid") == uid]
    assert [(e["reason"], e["series"]["count"]) for e in own] == [("DriftReverted", 2)]
    assert "DriftReverted" in cluster.kubectl("describe", "isvc", "chat")


def test_one_pass_makes_no_flood_of_events(api: ApiServer) -> None:
    found = live(api)
    many = [
        EventNote(service_ref(), "Applied", "Apply", f"update {i}")
        for i in range(MOST_AT_ONCE + 10)
    ]
    writer = EventWriter(api, "pod-a_1")

    assert writer.write(many, {service_ref(): found}) == MOST_AT_ONCE
    assert writer.write(many[:5], {service_ref(): found}) == 0

    bad = EventNote(service_ref(), "ApplyFailed", "Apply", "the next pass", is_bad=True)
    assert writer.write([*many[-5:], bad], {service_ref(): found}) == 1, "nor do many passes"
