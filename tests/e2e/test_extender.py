"""A real kube-scheduler that asks the extender, over nodes of five classes of device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.benchmark import config_map_data
from reconciler.api.nodelabels import DEFAULT_PREFIX, LABELER, METRICS_PORT, NodeLabels
from reconciler.kube.client.api import ApiServer
from reconciler.kube.extender.demand import service_facts
from reconciler.kube.extender.watching import FactsWatch
from reconciler.kube.render.affinity import required, terms
from tests.support.certificates import self_signed
from tests.support.cluster import Cluster
from tests.support.helm import CHART, NAMESPACE, helm, set_values
from tests.support.ports import own_ports
from tests.support.reconciler import Machine
from tests.support.scheduling import GIB, GPU, LABELS, deployment, pod, result
from tests.support.wait import PATIENCE_S, wait_for

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
    speeds = (_speed(CLASSES[name], speed) for name, speed in SPEEDS.items())
    cluster.apply(deployment(source="hf://org/repo/model-Q4_0.gguf", gpu_bytes=10 * GIB), *speeds)


def _speed(
    labels: NodeLabels, tokens_per_second: float, namespace: str = "default"
) -> dict[str, Any]:
    found = result(labels, tokens_per_second)
    name = {"name": found.key.config_map, "namespace": namespace, "labels": LABELS}
    data = config_map_data(found)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}


def _labeler(namespace: str) -> dict[str, Any]:
    """What calls itself so, with metrics on a port of its choice."""
    names = {"name": "labels", "namespace": namespace}
    ports = [{"name": METRICS_PORT, "containerPort": 18777}]
    container = {
        "name": "labels",
        "image": "labels.test/labels",
        "ports": ports,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    # An installed reconciler's namespace takes no other pods.
    safe = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**names, "labels": {"app.kubernetes.io/name": LABELER}},
        "spec": {"nodeName": "l4", "containers": [container], "securityContext": safe},
    }


def _release(cluster: Cluster, weights: dict[str, float]) -> None:
    """As a person changes the weights of what is installed."""
    at = ("--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE, "--create-namespace")
    values = {"scheduler.enabled": True, "scheduler.tls.secretName": "extender-tls"}
    words = set_values(
        {**values, **{f"scheduler.weights.{name}": w for name, w in weights.items()}}
    )
    helm("upgrade", "--install", "fleet", str(CHART), *at, *words)


@contextmanager
def _extender(machine: Machine, cluster: Cluster, port: int, folder: Path) -> Iterator[None]:
    """What the chart's Deployment says, as a process: no kubelet is here. `folder`: its Secret."""
    live = cluster.json("get", "deploy", "fleet-extender", "-n", NAMESPACE)
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["reconcile"]
    words = [str(word).replace("/etc/fleet/tls", str(folder)) for word in container["args"]]
    words[words.index("--port") + 1] = str(port)
    running = machine.start(*words, "--kubeconfig", str(cluster.kubeconfig))
    try:
        running.wait_said("schedulers are answered on port")
        running.wait_said("5 nodes are known")
        yield
    finally:
        running.end()


def _secret(folder: Path) -> Path:
    """A folder with what a Secret of the type kubernetes.io/tls has."""
    certificate, key = self_signed(folder)
    certificate.rename(folder / "tls.crt")
    key.rename(folder / "tls.key")
    return folder


def _configuration(
    machine: Machine, cluster: Cluster, port: int, certificate: Path, folder: Path
) -> Path:
    """As it is printed, for a scheduler beside the cluster's own."""
    words = ("--url", f"https://127.0.0.1:{port}", "--kubeconfig", str(cluster.kubeconfig))
    printed = machine.reconcile("extender", "--print-config", *words)
    made = yaml.safe_load(printed.out)
    made["profiles"] = [{"schedulerName": SCHEDULER}]
    made["leaderElection"] = {"leaderElect": False}
    made["extenders"][0]["tlsConfig"]["caFile"] = str(certificate)
    made["extenders"][0]["httpTimeout"] = f"{PATIENCE_S:g}s"  # it would go on without an answer
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


def test_pods_land_where_the_charts_weights_say_and_without_it_anywhere(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    _fill(cluster)
    (port,) = own_ports(1)
    secret = _secret(tmp_path / "tls")
    configuration = _configuration(machine, cluster, port, secret / "tls.crt", tmp_path)
    ours = {"schedulerName": SCHEDULER}

    with cluster.scheduler(configuration):
        _release(cluster, {"tps": 0.7, "util": 0.2, "cost": 0.1})
        with _extender(machine, cluster, port, secret):
            assert _lands(cluster, "fast", pod(**ours)) == "h100"
        _release(cluster, {"tps": 0, "util": 0, "cost": 1})
        with _extender(machine, cluster, port, secret):
            # p100 costs nothing, and has no kernels for weights of 4 bits
            assert _lands(cluster, "cheap", pod(**ours)) == "t4"
            assert _lands(cluster, "stranger", pod(None, **ours)) in CLASSES
        assert _lands(cluster, "alone", pod(**ours)) in CLASSES
        asked = required(terms("NVIDIA", frozenset({"sm_60", "sm_75"}), int4=True))
        assert _lands(cluster, "alone-and-right", pod(**ours, affinity=asked)) == "t4"
    helm("uninstall", "fleet", "--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE, "--wait")


def test_what_other_namespaces_say_counts_for_their_own_services_alone(
    cluster: Cluster, api: ApiServer
) -> None:
    cluster.add_node("l4", CLASSES["l4"].labels(), **{GPU: "4"})
    for namespace in ("evil", NAMESPACE):
        cluster.namespace(namespace)
        cluster.apply(_labeler(namespace))
    cluster.apply(_speed(CLASSES["l4"], 60.0), _speed(CLASSES["l4"], 1e9, "evil"))
    watch = FactsWatch(api, DEFAULT_PREFIX, lambda: None)

    def address(namespace: str) -> str:
        live = cluster.json("get", "pod", "labels", "-n", namespace)
        return str(live["status"].get("podIP") or "")

    watch.start()
    try:
        wait_for(lambda: bool(address("evil") and watch.current and watch.labelers), "its pods")
        assert watch.current is not None
        known = service_facts(deployment()).measured
        speeds = {
            namespace: watch.current.speeds.of(namespace, known, CLASSES["l4"], 1, time.time())
            for namespace in ("default", "evil", "other")
        }
        assert speeds == {"default": 60.0, "evil": 1e9, "other": None}
        assert watch.labelers == {"l4": f"http://{address(NAMESPACE)}:18777/metrics"}
    finally:
        watch.stop()
