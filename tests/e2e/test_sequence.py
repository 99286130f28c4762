"""From the labels of machines to a pod on the faster one: the sequence of docs/components.md, with
a real API server, kube-scheduler and engines. What a kubelet would start is run as a process."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.labels.labeler import Labeler
from reconciler.api.nodelabels import DEFAULT_PREFIX
from tests.support.bench_jobs import engine_at, jobs, results, run_as_kubelet
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.fleets import document, service
from tests.support.installed import install
from tests.support.machines import case
from tests.support.ports import own_port, own_ports
from tests.support.reconciler import Machine
from tests.support.scheduling import GPU
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

# The one that promises less has the faster engine: what counts is what was measured.
SPEEDS: dict[str, dict[str, int]] = {
    "l4": {"layers": 2},
    "h100": {"layers": 16, "embedding": 256, "feed_forward": 1024},
}


@pytest.fixture
def home(tmp_path: Path, own_cluster: Cluster, machine: Machine) -> ClusterFleet:
    """A pool of all nodes with an NVIDIA GPU, by their label."""
    install(own_cluster)
    made = ClusterFleet.create(tmp_path, own_cluster, machine)
    selector = {f"{DEFAULT_PREFIX}gpu.vendor": "NVIDIA"}
    pool = {"kubernetes": {"cluster": PROD, "nodeSelector": selector, "count": 2}}
    pool["hardware"] = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "22Gi"}]}
    made.push(edge=document("FleetNode", "edge", pool))
    return made


def _label(home: ClusterFleet, folder: Path) -> None:
    api = home.cluster.client("test")
    for name in SPEEDS:
        found = case(name, folder / name)
        home.cluster.add_node(name, {"zone": "a"}, **{GPU: "1"})
        Labeler(api, name, DEFAULT_PREFIX, found.facts).once()
    api.close()


def _push(home: ClusterFleet, **spec: Any) -> None:
    quick = {"warmupIterations": 0, "iterations": 2}
    wants = {"requests": {GPU: 1}}
    home.push(chat=service("chat", "phi", resources=wants, benchmark=quick, **spec))
    home.once()


def _nodes_of_pods(home: ClusterFleet) -> list[str]:
    words = ("get", "pods", "-l", "app.kubernetes.io/component=server")
    return sorted(pod["spec"].get("nodeName", "") for pod in home.cluster.json(*words)["items"])


@contextmanager
def _asked_scheduler(home: ClusterFleet, folder: Path) -> Iterator[str]:
    """The extender, and in the place of the cluster's scheduler one that asks it. Its address."""
    (port,) = own_ports(1)
    at = ("--kubeconfig", str(home.cluster.kubeconfig))
    words = ("--print-config", "--url", f"http://127.0.0.1:{port}", *at)
    made = yaml.safe_load(home.machine.reconcile("extender", *words).out)
    made["leaderElection"] = {"leaderElect": False}
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(made))
    weights = ("--weights", "tps=1,util=0,cost=0")
    extender = home.machine.start("extender", *at, "--port", str(port), *weights)
    extender.wait_said("3 nodes are known")
    home.cluster.stop_part("kube-scheduler")
    try:
        with home.cluster.scheduler(folder / "scheduler.yaml"):
            yield f"http://127.0.0.1:{port}"
    finally:
        extender.end()


def _node_of(job: dict[str, Any]) -> str:
    """Where it measures: it asks a pod there, or goes there itself and starts an engine."""
    pod = job["spec"]["template"]["spec"]
    words = pod["containers"][0]["args"]
    if "--node" in words:
        return str(words[words.index("--node") + 1])
    arch = pod["nodeSelector"][f"{DEFAULT_PREFIX}gpu.arch"]
    return {"sm_89": "l4", "sm_90": "h100"}[arch]


def test_a_pod_lands_on_the_node_that_was_measured_to_be_faster(
    home: ClusterFleet, tmp_path: Path
) -> None:
    """Though no pod of the service has been there: it is kept off by a cordon at first."""
    _label(home, tmp_path)
    home.cluster.kubectl("cordon", "l4")
    _push(home)
    home.cluster.kubectl("uncordon", "l4")
    assert _nodes_of_pods(home) == ["h100"]

    home.once()
    made = jobs(home)
    assert sorted(map(_node_of, made)) == ["h100", "l4"], "one for each class of devices"
    for job in made:
        node = _node_of(job)
        with engine_at(own_port(), tmp_path / f"engine-{node}", **SPEEDS[node]) as port:
            run_as_kubelet(home, job, port, tmp_path / f"{node}.log")
    home.once()

    speeds = {c["data"]["device"]: float(c["data"]["tokensPerSecond"]) for c in results(home)}
    assert sorted(speeds) == ["1 x NVIDIA sm_89, 22 GiB", "1 x NVIDIA sm_90, 79 GiB"]
    assert speeds["1 x NVIDIA sm_89, 22 GiB"] > speeds["1 x NVIDIA sm_90, 79 GiB"]
    shown = home.run("bench", "chat")
    assert "1 x NVIDIA sm_89, 22 GiB" in shown.out, shown.err
    (served,) = home.run("status", "-o", "json").json()["services"]
    told = [each["tokensPerSecond"] for each in served["placements"][0]["benchmarks"]]
    assert told
    assert all(any(each == pytest.approx(s, abs=0.01) for s in speeds.values()) for each in told)

    _push(home, suspend=True)
    wait_for(lambda: not _nodes_of_pods(home), "no pod is left")
    with _asked_scheduler(home, tmp_path) as url:
        _push(home)
        assert _nodes_of_pods(home) == ["l4"]
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
            said = answer.read().decode()
    assert 'fleet_extender_requests_total{result="ok",verb="prioritize"}' in said
    assert 'fleet_extender_unknown_nodes{fact="speed"} 0.0' in said
