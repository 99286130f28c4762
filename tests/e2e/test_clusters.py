"""Passes that do not go well everywhere: several clusters, and objects that cannot be made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.fleets import document, model, service
from tests.support.reconciler import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
FAILED, BLOCKED = 1, 3
SILENT = "https://127.0.0.1:1"  # nobody listens there


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def home(tmp_path: Path, cluster: Cluster, machine: Machine) -> ClusterFleet:
    return ClusterFleet.create(tmp_path, cluster, machine)


def both(home: ClusterFleet, folder: Path) -> tuple[str, ...]:
    """The cluster of the fleet, and one that gives no answer."""
    config: dict[str, Any] = json.loads(home.cluster.kubeconfig.read_text())
    (context,) = config["contexts"]
    lost = {"name": "lost", "cluster": {**config["clusters"][0]["cluster"], "server": SILENT}}
    config["clusters"].append(lost)
    other = {"name": "lost", "context": {**context["context"], "cluster": "lost"}}
    config["contexts"].append(other)
    path = folder / "both"
    path.write_text(json.dumps(config))
    named = ("--cluster", f"{PROD}=test", "--cluster", "spare=lost")
    return ("-C", str(home.repo.remote), *named, "--kubeconfig", str(path))


def test_a_silent_cluster_is_unknown_while_the_other_is_brought_up(
    home: ClusterFleet, tmp_path: Path
) -> None:
    home.push(
        far=document("FleetNode", "far", {"kubernetes": {"cluster": "spare"}}),
        chat=service("chat", "phi", placement={"nodes": ["edge"]}),
        search=service("search", "phi", placement={"nodes": ["far"]}),
    )
    words = both(home, tmp_path)

    plan = home.machine.reconcile("--dry-run", "-o", "json", *words)
    done = home.machine.reconcile("--once", "--timeout", "20s", *words)

    marks = {(c["target"], c["ref"]["name"], c["action"]) for c in plan.json()["changes"]}
    assert ("cluster/spare", "search", "unknown") in marks
    assert ("cluster/prod", "chat", "create") in marks
    assert [lost["target"] for lost in plan.json()["unreachable"]] == ["cluster/spare"]
    assert (plan.code, done.code) == (BLOCKED, BLOCKED)
    assert "?   InferenceService default/search" in done.out + done.err
    home.cluster.wait("deployment/chat", "--for=jsonpath={.status.readyReplicas}=1")


def test_a_run_that_cannot_make_an_object_has_failed(home: ClusterFleet) -> None:
    """The namespace is missing, which nobody here makes."""
    home.push(
        phi=model("phi", sha256="ab" * 32),
        chat=document("InferenceService", "chat", {"modelRef": "far"}, namespace="nowhere"),
        far=document(
            "Model", "far", {"source": "https://models.test/far.gguf"}, namespace="nowhere"
        ),
    )

    done = home.run("--once", "--timeout", "30s")

    assert done.code == FAILED
    assert "nowhere" in done.err
