"""Who scales a service and who routes to it: kinds of other projects, where a cluster has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import service
from tests.support.other_crds import install_others
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK = 0
KINDS = "scaledobjects,httproutes,inferencepools"
SCALED = {"autoscaling": {"maxReplicas": 3, "keda": {"cooldownPeriod": 60}}}
ROUTED = {
    "httpRoute": {"parentRefs": [{"name": "public"}], "timeouts": {"request": "5m"}},
    "inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}},
}


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def home(tmp_path: Path, cluster: Cluster, machine: Machine) -> ClusterFleet:
    return ClusterFleet.create(tmp_path, cluster, machine)


def test_a_service_goes_without_what_its_cluster_has_no_kind_for_and_gets_it_later(
    home: ClusterFleet,
) -> None:
    home.push(chat=service("chat", "phi", **SCALED, **ROUTED))

    shown, _ = home.dry_run(), home.once()
    without = home.dry_run()
    (said,) = _conditions(home)
    install_others(home.cluster)
    home.once()
    after = home.dry_run()

    for out in (shown.out, without.out):
        assert "KEDA is not installed there: no ScaledObject for default/chat" in out
    assert without.code == OK
    assert "no HTTPRoute, as the Gateway API is not installed" in said
    assert _names(home) == {"ScaledObject/chat", "HTTPRoute/chat", "InferencePool/chat"}
    assert (after.code, "is not installed" in after.out) == (OK, False), after.out
    assert _conditions(home) == []


def test_what_another_changes_is_taken_back_and_what_is_declared_no_more_goes(
    home: ClusterFleet,
) -> None:
    install_others(home.cluster)
    home.push(chat=service("chat", "phi", **SCALED, **ROUTED))
    home.once()
    uids = _pods(home)
    patch = '[{"op": "replace", "path": "/spec/rules/0/timeouts/request", "value": "1s"}]'
    home.cluster.kubectl("patch", "httproute", "chat", "--type=json", "-p", patch)

    drifted = home.dry_run()
    home.once()
    route = home.cluster.json("get", "httproute", "chat")["spec"]
    home.push(chat=service("chat", "phi", autoscaling={"maxReplicas": 3}))
    home.once()

    assert "HTTPRoute" in drifted.out
    assert route["rules"][0]["timeouts"] == {"request": "5m"}
    assert _names(home) == set()
    assert home.cluster.json("get", "hpa", "chat")["spec"]["maxReplicas"] == 3
    assert _pods(home) == uids, "no pod is replaced for who leads to it"


def test_a_service_that_keda_scaled_to_zero_says_so_and_is_written_once(home: ClusterFleet) -> None:
    """KEDA is not here: what it writes is written in its place."""
    install_others(home.cluster)
    home.push(chat=service("chat", "phi", **SCALED))
    home.once()
    home.cluster.wait("isvc", "chat", "--for=condition=Ready")
    home.cluster.kubectl("scale", "deployment", "chat", "--replicas=0")
    wait_for(lambda: _runs(home) == 0, "its pods are gone")

    home.once()
    first = home.cluster.json("get", "isvc", "chat")
    home.once()
    then = home.cluster.json("get", "isvc", "chat")

    (ready,) = (c for c in first["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")
    assert first["status"]["replicas"] == 0
    assert then["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert home.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 0
    assert "ScaledToZero" in home.run("status").out


def _runs(home: ClusterFleet) -> int:
    """How many replicas the cluster has, whatever it is to have."""
    return int(home.cluster.json("get", "deployment", "chat")["status"].get("replicas", 0))


def _conditions(home: ClusterFleet) -> list[str]:
    status = home.cluster.json("get", "isvc", "chat")["status"]
    return [c["message"] for c in status["conditions"] if c["type"] == "KindsInstalled"]


def _names(home: ClusterFleet) -> set[str]:
    found = home.cluster.json("get", KINDS)["items"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in found}


def _pods(home: ClusterFleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in home.cluster.json("get", "pods")["items"]}
