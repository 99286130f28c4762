"""The reconciler at work with exactly the rights that its installation gives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli import main
from tests.support.beside_cluster import NODE, BesideCluster
from tests.support.cluster import Cluster
from tests.support.fleets import document, model, service
from tests.support.installed import rights_of
from tests.support.ports import own_port
from tests.support.reconciler import Finished, Machine
from tests.support.repos import Repo
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

OK, CHANGES, BLOCKED = 0, 2, 3
POOL = {"kubernetes": {"cluster": "prod"}, "hardware": {"memory": "64Gi"}}
FLEET = {
    "fleet.yaml": document("Fleet", "home", {}),
    "pool.yaml": document("FleetNode", "edge", POOL),
    "gemma.yaml": model("gemma"),
}


@pytest.fixture
def repository(tmp_path: Path) -> Repo:
    """A fleet with one service on a pool of the cluster."""
    repository = Repo.create(tmp_path)
    chat = service("chat", "gemma", placement={"nodes": ["edge"]})
    repository.publish({**FLEET, "chat.yaml": chat})
    return repository


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def reconcile(
    cluster: Cluster, machine: Machine, repository: Repo, tmp_path: Path
) -> Callable[..., Finished]:
    """Run the program as its pod would: by its ServiceAccount's rights alone."""
    cluster.add_node("worker")
    own = rights_of(cluster, tmp_path)

    def run(*words: str, kubeconfig: Path = own) -> Finished:
        fleet = ("-C", str(repository.work)) if "uninstall" not in words else ()
        at = ("--cluster", "prod=test", "--kubeconfig", str(kubeconfig))
        return machine.reconcile(*words, *fleet, *at)

    return run


def test_a_services_whole_life_needs_no_more_than_these_rights(
    cluster: Cluster, repository: Repo, reconcile: Callable[..., Finished]
) -> None:
    first = reconcile("--once", "--timeout", "60s")
    cluster.wait("--for=condition=Ready", "isvc/chat")
    cluster.kubectl("scale", "deploy/chat", "--replicas=3")
    back = reconcile("--once", "--timeout", "60s")
    replicas = cluster.json("get", "deploy", "chat")["spec"]["replicas"]
    repository.write("chat.yaml", service("chat", "gemma", contextSize=4096))
    repository.commit("smaller")
    changed = reconcile("--once", "--timeout", "60s")
    (repository.work / "chat.yaml").unlink()
    repository.commit("no service any more")
    gone = reconcile("--once", "--timeout", "60s")

    ran = (first, back, changed, gone)
    assert [run.code for run in ran] == [OK, OK, OK, OK], [run.err for run in ran]
    assert not any("forbidden" in run.out + run.err for run in ran)
    assert replicas == 1
    wait_for(lambda: cluster.kubectl("get", "deploy,isvc", "-o", "name") == "", "nothing is left")


def test_an_uninstallation_after_it_leaves_nothing_behind(
    cluster: Cluster, reconcile: Callable[..., Finished]
) -> None:
    assert reconcile("--once", "--timeout", "60s").code == OK
    refused = reconcile("uninstall", kubeconfig=cluster.kubeconfig)
    token = refused.err.rpartition("--confirm ")[2].strip()

    run = reconcile("uninstall", "--confirm", token, kubeconfig=cluster.kubeconfig)

    assert (refused.code, run.code) == (BLOCKED, OK), refused.err + run.err
    assert "still there: Deployment default/chat" in refused.err
    kinds = "deploy,svc,jobs,cm,pvc,hpa,crd,clusterroles,priorityclasses"
    labelled = ("-A", "-o", "name", "-l", "app.kubernetes.io/managed-by=fleet-reconciler")
    wait_for(lambda: cluster.kubectl("get", kinds, *labelled) == "", "nothing is left")


def test_an_agents_kubeconfig_is_enough_for_a_real_agent(
    cluster: Cluster,
    machine: Machine,
    tiny: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    capfd.readouterr()
    at = ("--cluster", "prod=test", "--kubeconfig", str(cluster.kubeconfig))
    assert main(["install", "--agent", NODE, *at]) == OK
    own = tmp_path / "agent.kubeconfig"
    own.write_text(printed := capfd.readouterr().out)
    beside = BesideCluster(cluster, tiny)
    beside.put_node()
    beside.put_model()
    beside.declare("chat")
    beside.say("r1", "chat")

    running = machine.daemon("--kubernetes", "--kubeconfig", str(own), "--node", NODE)

    machine.wait_ready("chat")
    beside.wait_published("chat")
    wait_for(lambda: beside.instance("chat").get("ready") is True)
    wait_for(lambda: beside.observed().get("revision") == "r1")
    wait_for(lambda: bool(_holder(beside)), "the Lease is held")
    assert main(["install", "--agent", NODE, *at]) == OK  # once more, while it is at work
    assert capfd.readouterr() == (printed, "")
    beside.say("r2")  # a newer, complete list without it
    beside.wait_withdrawn("chat")
    wait_for(lambda: beside.instance("chat") == {}, "its entry is gone")
    assert "forbidden" not in running.err
    assert "denied" not in running.err


def _holder(beside: BesideCluster) -> str:
    lease = beside.lease() or {}
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def test_operator_mode_needs_no_more_than_these_rights(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    cluster.add_node("worker")
    own = rights_of(cluster, tmp_path)
    chat = service("chat", "gemma", placement={"nodes": ["edge"]})
    cluster.apply(*FLEET.values(), chat)  # as Flux or Argo CD would

    run = machine.reconcile(
        *("-C", "cluster://prod", "--once", "--timeout", "60s"),
        *("--cluster", "prod=test", "--kubeconfig", str(own)),
    )

    assert run.code == OK, run.out + run.err
    assert "forbidden" not in run.err
    cluster.wait("--for=condition=Ready", "isvc/chat")


def test_a_plan_names_a_pool_that_selects_no_node_until_there_is_one(
    cluster: Cluster, repository: Repo, reconcile: Callable[..., Finished]
) -> None:
    labels = {"flexinfer.ai/gpu.vendor": "NVIDIA"}
    pool = {**POOL, "kubernetes": {"cluster": "prod", "nodeSelector": labels}}
    repository.write("pool.yaml", document("FleetNode", "edge", pool))
    repository.commit("GPUs")

    without = reconcile("--dry-run")
    warned = reconcile("validate", "-o", "json")
    cluster.add_node("gpu", labels)
    there = reconcile("--dry-run")
    silent = reconcile("validate", "-o", "json")

    said = "no node there has what edge selects (flexinfer.ai/gpu.vendor=NVIDIA)"
    assert said in without.out
    assert said not in there.out
    assert (without.code, there.code) == (CHANGES, CHANGES)
    text = (repository.work / "pool.yaml").read_text().splitlines()
    (found,) = _selecting_none(warned)
    assert (found["path"], found["severity"]) == ("pool.yaml", "warning")
    assert "nodeSelector" in text[found["line"] - 1]
    assert "no node of cluster prod has flexinfer.ai/gpu.vendor=NVIDIA" in found["message"]
    assert _selecting_none(silent) == []
    assert (warned.code, silent.code) == (OK, OK), warned.err + silent.err


def test_validate_names_a_claim_that_nodes_could_share_and_the_pool_says_no(
    cluster: Cluster, repository: Repo, reconcile: Callable[..., Finished]
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }

    def warned(cache: str, count: int = 2) -> list[str]:
        spec = {"kubernetes": {"cluster": "prod", "count": count, "cache": cache}}
        repository.write("pool.yaml", document("FleetNode", "edge", {**POOL, **spec}))
        problems = json.loads(reconcile("validate", "-o", "json").out)["problems"]
        return [p["message"] for p in problems if p["rule"] == "ClaimIsShared"]

    assert warned("claim:models") == [], "nobody made it yet"
    cluster.apply(claim)

    (message,) = warned("claim:models")
    assert "several nodes can mount claim models of namespace default" in message
    assert "write `cache: claim:models,RWX`" in message
    assert warned("claim:models,RWX") == []
    assert warned("claim:models", count=1) == []
    claim["spec"]["accessModes"] = ["ReadWriteOnce"]
    claim["metadata"]["name"] = "other"
    cluster.apply(claim)
    assert warned("claim:other") == []


def test_validate_says_which_cluster_gave_no_answer_beside_what_is_in_the_files(
    cluster: Cluster, repository: Repo, reconcile: Callable[..., Finished], tmp_path: Path
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{own_port()}"
    nowhere = tmp_path / "nowhere.kubeconfig"
    nowhere.write_text(yaml.safe_dump(config))
    labels = {"nodeSelector": {"gpu": "yes"}, "cluster": "prod"}
    repository.write("pool.yaml", document("FleetNode", "edge", {**POOL, "kubernetes": labels}))

    unreachable = reconcile("validate", kubeconfig=nowhere)
    repository.write("wrong.yaml", service("wrong", "nobody"))
    invalid = reconcile("validate", kubeconfig=nowhere)

    said = "cluster prod was not asked what its pools select"
    assert (unreachable.code, invalid.code) == (BLOCKED, 1), unreachable.err + invalid.err
    assert "\nvalid:" in f"\n{unreachable.out}"
    assert "DanglingReference" in invalid.out
    assert said in unreachable.err
    assert said in invalid.err


def test_a_plan_says_that_a_cluster_was_applied_with_a_default_that_is_not_given_here(
    cluster: Cluster, reconcile: Callable[..., Finished]
) -> None:
    image = ("--default-backend-image", "registry.test/llama.cpp:1")
    applied = reconcile("--once", "--timeout", "60s", *image)

    same = reconcile("--dry-run", *image)
    other = reconcile("--dry-run")

    assert (applied.code, same.code, other.code) == (OK, OK, CHANGES), applied.err + other.out
    pod = cluster.json("get", "deploy", "chat")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == image[1]
    assert f"{image[1]} by DEFAULT_BACKEND_IMAGE of this process" in same.err
    said = f"applied there with DEFAULT_BACKEND_IMAGE={image[1]} (here: none)"
    assert said in " ".join(other.out.split())
    assert "applied there with" not in same.out


def _selecting_none(run: Finished) -> list[dict[str, Any]]:
    problems = json.loads(run.out)["problems"]
    return [p for p in problems if p["rule"] == "NoNodeSelected"]
