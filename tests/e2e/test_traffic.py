"""Who scales a service and who routes to it: kinds of other projects, where a cluster has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import service
from tests.support.keda import TRIGGER_ERROR, Keda
from tests.support.other_crds import install_others
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK = 0
INSTALLED = "KindsInstalled"
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
    (said,) = _conditions(home, INSTALLED)
    install_others(home.cluster)
    home.once()
    after = home.dry_run()

    for out in (shown.out, without.out):
        assert "KEDA is not installed there: no ScaledObject for default/chat" in out
    assert without.code == OK
    assert "no HTTPRoute, as the Gateway API is not installed" in said
    assert _names(home) == {"ScaledObject/chat", "HTTPRoute/chat", "InferencePool/chat"}
    assert (after.code, "is not installed" in after.out) == (OK, False), after.out
    assert _conditions(home, INSTALLED) == []


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
    alone, shown = home.run("--once", "--timeout", "1s"), home.run("status").out
    Keda(home.cluster).look_at("chat")

    home.once()
    first = home.cluster.json("get", "isvc", "chat")
    home.once()
    then = home.cluster.json("get", "isvc", "chat")

    assert alone.code != OK, "nobody starts it"
    assert "KEDA starts none: of its ScaledObject, KEDA has not looked at it" in shown
    assert "ScaledObject default/chat: KEDA has not looked at it" in shown
    (ready,) = (c for c in first["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")
    assert _conditions(home, "ObjectsAccepted") == []
    assert first["status"]["replicas"] == 0
    assert then["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert home.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 0
    assert "ScaledToZero" in home.run("status").out


def test_what_keda_writes_is_its_own_and_what_it_does_not_end_is_said(home: ClusterFleet) -> None:
    """Its autoscaler has our labels, and its finalizer outlives it where it is uninstalled."""
    install_others(home.cluster)
    home.push(chat=service("chat", "phi", **SCALED))
    home.once()
    keda = Keda(home.cluster)
    keda.look_at("chat")
    looked_at = home.dry_run()
    keda.look_at("chat", TRIGGER_ERROR)
    home.once()
    (failing,) = _conditions(home, "ObjectsAccepted")
    kept = home.cluster.json("get", "hpa")["items"]
    home.push(chat=service("chat", "phi"))
    home.once()

    waiting = home.dry_run()
    keda.finish("chat")
    ended = home.dry_run()

    assert (looked_at.code, "ScaledObject" in looked_at.out) == (OK, False), looked_at.out
    assert failing.startswith("ScaledObject: TriggerError: Triggers defined")
    assert [each["metadata"]["name"] for each in kept] == ["keda-hpa-chat"]
    assert waiting.code == OK
    assert "default/chat: it is being deleted and waits for finalizer.keda.sh" in waiting.out
    assert "finalizer" not in ended.out
    assert _names(home) == set()


def test_a_scaled_object_is_no_refusal_of_a_plan_that_removes_the_autoscaler_before(
    home: ClusterFleet,
) -> None:
    """KEDA's admission refuses one while another autoscaler is there, in a dry run, too. Here one
    refuses all."""
    install_others(home.cluster)
    home.push(chat=service("chat", "phi", autoscaling={"maxReplicas": 3}))
    home.once()
    refusing = _refuse_scaled_objects(home.cluster)
    home.push(chat=service("chat", "phi", **SCALED), other=service("other", "phi", **SCALED))

    planned = home.dry_run("-o", "json").json()
    home.cluster.kubectl("delete", *refusing)
    wait_for(lambda: not _is_refused(home.cluster), "nothing is refused")
    home.once()

    blocked = [(each["ref"]["name"], each["reason"]) for each in planned["blocked"]]
    assert blocked == [("other", "ObjectRefused")]
    assert home.cluster.json("get", "hpa")["items"] == []
    assert _names(home) == {"ScaledObject/chat", "ScaledObject/other"}


def _refuse_scaled_objects(cluster: Cluster) -> tuple[str, ...]:
    """What to delete of it afterwards."""
    rule = {
        "apiGroups": ["keda.sh"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE"],
        "resources": ["scaledobjects"],
    }
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    specs = (
        {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "already managed by the hpa"}],
        },
        {"policyName": "keda", "validationActions": ["Deny"]},
    )
    for kind, spec in zip(kinds, specs, strict=True):
        made = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "spec": spec}
        cluster.apply({**made, "metadata": {"name": "keda"}})
    wait_for(lambda: _is_refused(cluster), "it refuses")
    return tuple(f"{kind.lower()}/keda" for kind in kinds)


def _is_refused(cluster: Cluster) -> bool:
    spec = {"scaleTargetRef": {"name": "x"}, "triggers": [{"type": "cpu", "metadata": {}}]}
    made = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "x"}}
    words = ("create", "--dry-run=server", "-f", "-")
    said = cluster.kubectl(*words, text=json.dumps({**made, "spec": spec}), check=False)
    return "already managed" in said


def _runs(home: ClusterFleet) -> int:
    """How many replicas the cluster has, whatever it is to have."""
    return int(home.cluster.json("get", "deployment", "chat")["status"].get("replicas", 0))


def _conditions(home: ClusterFleet, kind: str) -> list[str]:
    status = home.cluster.json("get", "isvc", "chat")["status"]
    return [c["message"] for c in status["conditions"] if c["type"] == kind]


def _names(home: ClusterFleet) -> set[str]:
    found = home.cluster.json("get", KINDS)["items"]
    return {f"{each['kind']}/{each['metadata']['name']}" for each in found}


def _pods(home: ClusterFleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in home.cluster.json("get", "pods")["items"]}
