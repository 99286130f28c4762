"""The labeler against a real API server."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.labels.facts import DriverHangs, Facts
from agent.labels.labeler import Labeler
from agent.labels.node import LABELER
from reconciler.http.server import bound
from reconciler.kube.client.api import ApiServer
from tests.support.cluster import Cluster
from tests.support.machines import case, write
from tests.support.ports import own_ports
from tests.support.reconciler import Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

PREFIX = "flexinfer.ai/"
NODE = "worker-3"
KEPT = {"zone": "a", "nvidia.com/gpu.present": "true"}


@pytest.fixture(autouse=True)
def node(cluster: Cluster) -> Iterator[None]:
    cluster.add_node(NODE, KEPT)
    yield
    cluster.kubectl("delete", "node", NODE, "other", "--ignore-not-found")


def labels(cluster: Cluster, node: str = NODE) -> dict[str, str]:
    """Without those that kwok and Kubernetes write."""
    found = cluster.json("get", "node", node)["metadata"]["labels"]
    return {key: text for key, text in found.items() if "kubernetes.io" not in key}


def ours(cluster: Cluster, node: str = NODE) -> dict[str, str]:
    found = labels(cluster, node).items()
    return {k.removeprefix(PREFIX): text for k, text in found if k.startswith(PREFIX)}


def last_written(cluster: Cluster) -> list[str]:
    """When our keys were, by the server. The Node itself has other writers."""
    said = cluster.json("get", "node", NODE, "--show-managed-fields")["metadata"]["managedFields"]
    return [entry["time"] for entry in said if entry["manager"] == LABELER]


def labeler(api: ApiServer, facts: Facts, *, rewritten_s: float = 300) -> Labeler:
    return Labeler(api, NODE, PREFIX, lambda: facts, rewritten_s=rewritten_s)


def test_labels_follow_the_machine_and_go_with_it(
    cluster: Cluster, api: ApiServer, tmp_path: Path
) -> None:
    l4, bare = case("l4", tmp_path / "l4"), case("vm-without-gpu", tmp_path / "bare")

    labeler(api, l4.facts()).once()
    first, written = cluster.json("get", "node", NODE)["metadata"], last_written(cluster)
    labeler(api, l4.facts()).once()
    again = last_written(cluster)
    labeler(api, bare.facts()).once()  # a new process: the server knows what was ours

    assert {k.removeprefix(PREFIX): v for k, v in first["labels"].items()}.items() >= (
        l4.labels.items()
    )
    assert first["annotations"][f"{PREFIX}gpu.vram-mib"] == "23034"
    assert len(written) == 1
    assert again == written  # the server changes nothing that is the same
    assert labels(cluster) == KEPT | {f"{PREFIX}cpu.avx512": "false"}
    left = cluster.json("get", "node", NODE)["metadata"].get("annotations", {})
    assert [key for key in left if key.startswith(PREFIX)] == []


def test_what_somebody_else_wrote_is_said_and_left_alone(
    cluster: Cluster, api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.kubectl("label", "node", NODE, f"{PREFIX}gpu.vram=12Gi")
    cluster.kubectl("annotate", "node", NODE, f"{PREFIX}gpu.vram-mib=12288")
    facts = case("l4", tmp_path).facts()
    running = labeler(api, facts)

    with caplog.at_level(logging.INFO, "agent.labels"):
        running.once()
        running.once()

    assert ours(cluster)["gpu.vram"] == "12Gi"
    assert ours(cluster)["gpu.arch"] == "sm_89"
    said = [r.getMessage() for r in caplog.records if "someone else" in r.getMessage()]
    assert len(said) == 1
    assert f"{PREFIX}gpu.vram is kubectl" in said[0]
    assert f"{PREFIX}gpu.vram-mib is kubectl" in said[0]


def test_what_a_vendors_labeler_wrote_counts(
    cluster: Cluster, api: ApiServer, tmp_path: Path
) -> None:
    machine = case("nvidia-by-its-labeler", tmp_path)
    words = [f"{key}={text}" for key, text in machine.labels_of_others.items()]
    cluster.kubectl("label", "node", NODE, *words)

    labeler(api, machine.facts()).once()

    assert ours(cluster) == machine.labels


def test_a_driver_that_hangs_costs_no_label(
    cluster: Cluster, api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labeler(api, case("l4", tmp_path).facts()).once()
    before, stop, asked = ours(cluster), threading.Event(), []

    def hangs() -> Facts:
        asked.append(1)
        if len(asked) == 3:
            stop.set()
        raise DriverHangs("the machine's drivers gave no answer")

    caplog.clear()
    with caplog.at_level(logging.INFO, "agent.labels"):
        Labeler(api, NODE, PREFIX, hangs).run(stop, 0.01)  # says it once

    assert ours(cluster) == before
    assert [r.getMessage() for r in caplog.records] == [
        f"the machine's drivers gave no answer; the labels of node {NODE} stay as they are"
    ]


def test_a_loop_writes_what_changes_and_leaves_its_labels_when_it_ends(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    write(tmp_path, {"proc/cpuinfo": "flags : fpu avx2\n"})
    words = ("--kubeconfig", str(cluster.kubeconfig), "--node", NODE)

    running = machine.labeler(
        *words, "--host-root", str(tmp_path), "--interval", "1s", "--metrics-port", "0"
    )
    wait_for(lambda: ours(cluster) == {"cpu.avx512": "false"})
    case("mi210", tmp_path)
    wait_for(lambda: ours(cluster).get("gpu.arch") == "gfx90a")
    write(tmp_path, {"sys/bus/pci/devices/0000:63:00.0/vendor": "0x1af4\n"})
    write(tmp_path, {"sys/class/drm/card0/device/vendor": "0x1af4\n"})
    wait_for(lambda: ours(cluster) == {"cpu.avx512": "false"})

    assert running.end() == 0
    assert ours(cluster) == {"cpu.avx512": "false"}


def test_health_and_readings_are_served(cluster: Cluster, machine: Machine, tmp_path: Path) -> None:
    case("mi210", tmp_path)
    (port,) = own_ports(1)
    words = ("--kubeconfig", str(cluster.kubeconfig), "--node", NODE)

    machine.labeler(*words, "--host-root", str(tmp_path), "--metrics-port", str(port))
    wait_for(lambda: f'fleet_labels_current{{node="{NODE}"}} 1.0' in _get(port, "/metrics"))
    wait_for(lambda: "celsius{" in _get(port, "/metrics"))

    said = _get(port, "/metrics").splitlines()
    assert f'flexinfer_gpu_temperature_celsius{{gpu="0",node="{NODE}"}} 61.0' in said
    assert f'fleet_gpu_utilization_ratio{{gpu="0",node="{NODE}"}} 0.98' in said
    assert '"status":"ok"' in _get(port, "/healthz")


def test_a_port_that_is_taken_is_said(cluster: Cluster, machine: Machine) -> None:
    with bound("0.0.0.0", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        words = ("--kubeconfig", str(cluster.kubeconfig), "--metrics-port", str(port))
        run = machine.agent("label", *words)

    assert run.code == 64
    assert f"--metrics-port {port}: Address already in use" in run.err


def _get(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_labels_are_taken_away_from_every_node_on_request(
    cluster: Cluster, api: ApiServer, machine: Machine, tmp_path: Path
) -> None:
    cluster.add_node("other", {f"{PREFIX}gpu.vendor": "NVIDIA"})  # written by somebody else
    labeler(api, case("l4", tmp_path).facts()).once()

    run = machine.agent("label", "--remove", "--all", "--kubeconfig", str(cluster.kubeconfig))

    assert run.code == 0, run.err
    assert labels(cluster) == KEPT
    assert ours(cluster, "other") == {"gpu.vendor": "NVIDIA"}


def test_a_node_that_is_not_there_is_said_and_not_made(
    cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    case("l4", tmp_path)
    words = ("--once", "--host-root", str(tmp_path), "--kubeconfig", str(cluster.kubeconfig))

    run = machine.agent("label", *words, "--node", "worker-4")

    assert run.code == 64
    assert "has no Node 'worker-4': say with --node NAME" in run.err
    assert "worker-4" not in cluster.kubectl("get", "nodes", "-o", "name")
