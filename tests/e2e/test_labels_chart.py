"""The chart's labelers: what they may do, shown with the token of one of their pods."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli import parser_of
from reconciler.api.nodelabels import NodeLabels
from reconciler.kube.objects import id_of
from tests.support.cluster import Cluster
from tests.support.helm import CHART, NAMESPACE, helm
from tests.support.installed import kubeconfig_of
from tests.support.machines import case
from tests.support.reconciler import Finished, Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

ON = ("--set", "labels.enabled=true")


def rendered(*words: str) -> dict[str, dict[str, Any]]:
    """Kind and name -> manifest, of what the labelers are."""
    text = helm("template", "fleet", str(CHART), "-n", NAMESPACE, *words)
    made = [d for d in yaml.safe_load_all(text) if d and "labels" in d["metadata"]["name"]]
    return {str(id_of(d)._replace(namespace="")): d for d in made}


def test_no_labeler_runs_unless_it_is_asked_for() -> None:
    assert rendered() == {}


def test_a_labelers_pod_is_what_the_strictest_namespace_takes() -> None:
    pod = rendered(*ON)["DaemonSet fleet-labels"]["spec"]["template"]["spec"]

    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "volumes" not in pod
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_words_of_both_containers_are_ours() -> None:
    made = rendered(*ON, "--set", "labels.prefix=gpu.example", "--set", "labels.interval=1m")
    spec = made["DaemonSet fleet-labels"]["spec"]["template"]["spec"]
    removal = made["Job fleet-labels-removal"]["spec"]["template"]["spec"]

    program, *words = spec["containers"][0]["args"]
    _, *removing = removal["containers"][0]["args"]

    said = parser_of(program).parse_args(words)
    assert (said.interval, said.metrics_port, said.label_prefix) == (60, 9100, "gpu.example/")
    assert parser_of("label").parse_args(removing).all


def test_the_policy_knows_every_key_that_is_written() -> None:
    (policy,) = (d for n, d in rendered(*ON).items() if n.startswith("ValidatingAdmissionPolicy f"))
    facts = NodeLabels("NVIDIA", 2**30, "sm_89", True, 1, avx512=True, unified=True)
    names = facts.labels("") | facts.annotations("")

    text = json.dumps(policy)

    assert [n for n in names if n.rpartition(".")[2] not in text] == []


@pytest.fixture
def label(cluster: Cluster, machine: Machine, tmp_path: Path) -> Iterator[Callable[..., Finished]]:
    """Installs the chart, and plays the labeler's pod of node `a` on a machine with an MI210."""
    at = ("-n", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))
    case("mi210", tmp_path / "mi210")
    cluster.add_node("a", {"zone": "1"})
    cluster.add_node("b", {"zone": "2"})
    helm("upgrade", "--install", "fleet", str(CHART), *at, "--create-namespace", *ON)
    _wait_rolled_out(cluster)
    own = kubeconfig_of(cluster, "fleet-labels", tmp_path, pod=_pod(cluster, "a"))

    try_b = ("label", "node", "b", "flexinfer.ai/x=y", "--dry-run=server", "--kubeconfig", str(own))
    wait_for(
        lambda: "a labeler writes" in cluster.kubectl(*try_b, check=False), "the policy is in force"
    )

    def run(*words: str) -> Finished:
        """A token ends with its pod: one of the pod that is there now."""
        own = kubeconfig_of(cluster, "fleet-labels", tmp_path, pod=_pod(cluster, "a"))
        where = ("--kubeconfig", str(own), "--host-root", str(tmp_path / "mi210"))
        return machine.agent("label", *where, *words)

    yield run
    helm("uninstall", "fleet", *at, "--no-hooks", check=False)
    cluster.kubectl("delete", "node", "a", "b")


def _wait_rolled_out(cluster: Cluster) -> None:
    """Each node has its pod, of the newest template, and none is about to go."""
    words = ("rollout", "status", "daemonset/fleet-labels", "-n", NAMESPACE)
    cluster.kubectl(*words, f"--timeout={PATIENCE_S:g}s")
    wait_for(lambda: len(_pods(cluster, "a")) == 1, "a labeler's pod on node a")


def _pod(cluster: Cluster, node: str) -> str:
    (found,) = _pods(cluster, node)
    return found


def _pods(cluster: Cluster, node: str) -> list[str]:
    """The names of those that are there to stay."""
    pods = cluster.json("get", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=fleet-labels")
    there = [p for p in pods["items"] if "deletionTimestamp" not in p["metadata"]]
    return [p["metadata"]["name"] for p in there if p["spec"].get("nodeName") == node]


def _ours(cluster: Cluster, node: str, prefix: str = "flexinfer.ai/") -> dict[str, str]:
    found = cluster.json("get", "node", node)["metadata"]["labels"]
    return {key: text for key, text in found.items() if key.startswith(prefix)}


@pytest.mark.cluster
def test_a_labeler_may_write_its_own_keys_of_its_own_node_and_nothing_else(
    cluster: Cluster, label: Callable[..., Finished], tmp_path: Path
) -> None:
    own = label("--once", "--node", "a")
    others = label("--once", "--node", "b")
    cluster.kubectl("label", "node", "a", "nvidia.com/gpu.count=4")

    kubeconfig = str(tmp_path / "fleet-labels.kubeconfig")
    tried = [
        cluster.kubectl(*words, "--kubeconfig", kubeconfig, check=False)
        for words in (
            ("label", "node", "a", "zone=2", "--overwrite"),
            ("label", "node", "a", "zone-"),
            ("label", "node", "a", "nvidia.com/gpu.count-"),
            ("annotate", "node", "a", "cluster-autoscaler.kubernetes.io/scale-down-disabled=true"),
            ("patch", "node", "a", "-p", '{"spec": {"unschedulable": true}}'),
            ("get", "secrets", "-A"),
            ("delete", "node", "a"),
        )
    ]

    assert own.code == 0, own.err
    assert _ours(cluster, "a")["flexinfer.ai/gpu.arch"] == "gfx90a"
    assert others.code == 1
    assert "a labeler writes the Node alone that its pod runs on" in others.err
    assert _ours(cluster, "b") == {}
    policy = "denied request: a labeler writes"
    assert all(policy in text for text in tried[:5]), tried
    assert all("forbidden: User" in text for text in tried[5:]), tried


@pytest.mark.cluster
def test_another_prefix_replaces_the_one_before(
    cluster: Cluster, label: Callable[..., Finished]
) -> None:
    at = ("-n", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))
    assert label("--once", "--node", "a").code == 0

    helm("upgrade", "fleet", str(CHART), *at, *ON, "--set", "labels.prefix=gpu.example/")
    _wait_rolled_out(cluster)
    wait_for(
        lambda: label("--once", "--node", "a", "--label-prefix", "gpu.example").code == 0,
        "the policy has the new prefix",
    )

    assert _ours(cluster, "a") == {}
    assert _ours(cluster, "a", "gpu.example/")["gpu.example/gpu.arch"] == "gfx90a"


@pytest.mark.cluster
def test_what_is_left_after_an_uninstallation_is_removed_with_the_rights_of_its_hook(
    cluster: Cluster, label: Callable[..., Finished], machine: Machine, tmp_path: Path
) -> None:
    assert label("--once", "--node", "a").code == 0
    made = rendered(*ON)
    hook = [made[name] for name in made if "removal" in name and not name.startswith("Job")]
    cluster.apply(*hook)
    own = kubeconfig_of(cluster, "fleet-labels-removal", tmp_path)
    job = made["Job fleet-labels-removal"]["spec"]["template"]["spec"]

    run = machine.agent(*job["containers"][0]["args"], "--kubeconfig", str(own))

    assert run.code == 0, run.err
    assert _ours(cluster, "a") == {}
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "fleet-labels-removal")
