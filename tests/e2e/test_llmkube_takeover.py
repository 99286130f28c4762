"""A cluster on which LLMKube ran becomes ours: at a real API server, with what its controller wrote
there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.llmkube import (
    NAMESPACE,
    LlmkubeServices,
    end_controller,
    pods_of,
    start_controller,
)
from tests.support.reconciler import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, CHANGES = 0, 2
SERVICES = LlmkubeServices(("chat", "draw"))


@pytest.fixture
def home(tmp_path: Path, installed_cluster: Cluster, machine: Machine) -> ClusterFleet:
    """Their documents in git, without any FleetNode, and what stands of them in the cluster."""
    made = ClusterFleet.create(tmp_path, installed_cluster, machine)
    made.cluster.add_node("gpu-1", {}, **{"nvidia.com/gpu": "2"})
    SERVICES.write(made.cluster)
    documents = {name.removesuffix(".yaml"): text for name, text in SERVICES.files().items()}
    made.push(edge=None, phi=None, **documents)
    return made


def test_what_stands_is_adopted_and_changes_with_its_service_alone(home: ClusterFleet) -> None:
    cluster = home.cluster
    before = pods_of(cluster, "chat") | pods_of(cluster, "draw")
    stood = {name: cluster.json("get", "deployment", name) for name in SERVICES.names}
    documents = specs(cluster, "models,inferenceservices")

    start_controller(cluster, cluster.namespace(NAMESPACE))
    fighting = home.dry_run("-o", "json").json()
    end_controller(cluster, NAMESPACE)
    plan = home.dry_run()
    home.once()
    after = home.dry_run()

    blocked = {(each["ref"]["name"], each["reason"]) for each in fighting["blocked"]}
    assert blocked == {("chat", "NotOurs"), ("draw", "NotOurs")}
    assert all("scale deployment llmkube-contr" in each["message"] for each in fighting["blocked"])

    assert plan.code == CHANGES, plan.out + plan.err
    said = " ".join(plan.out.split())
    assert "~ Deployment default/chat chat.yaml:16" in said
    assert "adopted as it stands, with its pods" in said
    assert "with the service's next change: spec.progressDeadlineSeconds, " in said
    assert (after.code, after.out.splitlines()[-1]) == (OK, "Plan: 2 restart pending, 3 unchanged.")
    assert pods_of(cluster, "chat") | pods_of(cluster, "draw") == before
    now = {name: cluster.json("get", "deployment", name) for name in SERVICES.names}
    assert {n: d["spec"] for n, d in now.items()} == {n: d["spec"] for n, d in stood.items()}
    assert specs(cluster, "models,inferenceservices") == documents  # in the words of git
    claim = cluster.json("get", "persistentvolumeclaim", "chat-model-cache")["metadata"]
    assert "ownerReferences" not in claim, "it does not go with a document"

    image = ("set", "image", "deployment/draw", "llama-server=mine:1")
    cluster.kubectl(*image)
    drift = home.dry_run()
    home.once()

    assert "mine:1 by kubectl-set" in drift.out
    draw = cluster.json("get", "deployment", "draw")
    assert draw["spec"] == stood["draw"]["spec"]
    cluster.wait("deployment", "draw", "--for=condition=Available")
    before = pods_of(cluster, "draw")

    text = SERVICES.files()["chat.yaml"].replace("contextSize: 4096", "contextSize: 8192")
    home.push(chat=text)
    rolled = home.run("--once", "--timeout", "60s")

    assert "PersistentVolumeClaim default/chat-model-cache is no longer declared" in rolled.out

    assert pods_of(cluster, "draw") == before
    chat, service = (cluster.json("get", kind, "chat") for kind in ("deployment", "service"))
    [engine] = chat["spec"]["template"]["spec"]["containers"]
    assert "8192" in engine["args"]
    assert chat["metadata"]["uid"] == stood["chat"]["metadata"]["uid"]
    labels = chat["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert chat["spec"]["selector"] == stood["chat"]["spec"]["selector"]

    home.push(chat=None)
    home.run("--once", "--timeout", "60s")

    found = cluster.json("get", "deployments,services,inferenceservices,models,pvc")["items"]
    left = {each["metadata"]["name"] for each in found}
    assert left == {"draw", "kubernetes", "llmkube-model-cache", "chat-model-cache"}


def specs(cluster: Cluster, kinds: str) -> list[Any]:
    return [each["spec"] for each in cluster.json("get", kinds)["items"]]
