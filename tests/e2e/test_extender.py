"""A real kube-scheduler that asks the extender, over nodes of five classes of device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.benchmark import config_map_data
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels
from tests.support.cluster import Cluster
from tests.support.ports import own_ports
from tests.support.reconciler import Machine
from tests.support.scheduling import GIB, GPU, LABELS, deployment, pod, result
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

SCHEDULER = "asks-the-extender"
CLASSES = {
    "h100": NodeLabels("NVIDIA", 80 * GIB, "sm_90", int4=True, count=4),
    "l4": NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=4),
    "t4": NodeLabels("NVIDIA", 15 * GIB, "sm_75", int4=True, count=4),
    "p100": NodeLabels("NVIDIA", 16 * GIB, "sm_60", int4=False, count=4),
    "mi210": NodeLabels("AMD", 64 * GIB, "gfx90a", int4=True, count=4),
}
COSTS = {"h100": 4.0, "l4": 1.0, "t4": 0.2, "p100": 0.0}
SPEEDS = {"h100": 200.0, "l4": 60.0, "t4": 20.0}


def _fill(cluster: Cluster) -> None:
    for name, labels in CLASSES.items():
        resource = "amd.com/gpu" if labels.vendor == "AMD" else GPU
        cluster.add_node(name, labels.labels(), **{resource: "4"})
        if name in COSTS:
            note = f"{DEFAULT_PREFIX}cost-per-hour={COSTS[name]}"
            cluster.kubectl("annotate", "node", name, note)
    results = [result(CLASSES[name], speed) for name, speed in SPEEDS.items()]
    cluster.apply(
        deployment(source="hf://org/repo/model-Q4_0.gguf", gpu_bytes=10 * GIB),
        *(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": each.key.config_map,
                    "namespace": "default",
                    "labels": LABELS,
                },
                "data": config_map_data(each),
            }
            for each in results
        ),
    )


@contextmanager
def _extender(machine: Machine, cluster: Cluster, port: int, weights: str) -> Iterator[None]:
    at = ("--kubeconfig", str(cluster.kubeconfig), "--port", str(port))
    running = machine.start("extender", *at, "--weights", weights)
    try:
        running.wait_said("schedulers are answered on port")
        running.wait_said("5 nodes are known")
        yield
    finally:
        running.end()


def _configuration(machine: Machine, cluster: Cluster, port: int, folder: Path) -> Path:
    """As it is printed, for a scheduler beside the cluster's own."""
    words = ("--url", f"http://127.0.0.1:{port}", "--kubeconfig", str(cluster.kubeconfig))
    printed = machine.reconcile("extender", "--print-config", *words)
    made = yaml.safe_load(printed.out)
    made["profiles"] = [{"schedulerName": SCHEDULER}]
    made["leaderElection"] = {"leaderElect": False}
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(made))
    return folder / "scheduler.yaml"


def _lands(cluster: Cluster, name: str, manifest: dict[str, Any]) -> str:
    """The node of a new pod."""
    manifest["metadata"]["name"] = name
    cluster.apply(manifest)

    def where() -> str:
        live = cluster.json("get", "pod", name)
        return str(live["spec"].get("nodeName") or "")

    wait_for(lambda: bool(where()), f"a node for {name}")
    return where()


def test_pods_land_where_the_score_says_and_without_it_anywhere(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    _fill(cluster)
    (port,) = own_ports(1)
    ours = {"schedulerName": SCHEDULER}

    with cluster.scheduler(_configuration(machine, cluster, port, tmp_path)):
        with _extender(machine, cluster, port, "tps=0.7,util=0.2,cost=0.1"):
            assert _lands(cluster, "fast", pod(**ours)) == "h100"
        with _extender(machine, cluster, port, "tps=0,util=0,cost=1"):
            # p100 costs nothing, and has no kernels for weights of 4 bits
            assert _lands(cluster, "cheap", pod(**ours)) == "t4"
            assert _lands(cluster, "stranger", pod(None, **ours)) in CLASSES
        assert _lands(cluster, "alone", pod(**ours)) in CLASSES
