"""A model is measured in a cluster: one Job for each class of devices, whose container runs here as
a process where a kubelet would start it."""

from __future__ import annotations

import hashlib
import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.nodelabels import NodeLabels
from tests.support.bench_jobs import (
    ended_pod,
    engine_at,
    jobs,
    results,
    run_alone_as_kubelet,
    run_as_kubelet,
)
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import L4, PROD, ClusterFleet
from tests.support.fleets import document, model, service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.ports import own_port, own_ports
from tests.support.reconciler import Machine
from tests.support.scheduling import GIB, GPU
from tests.support.wait import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

OK, CHANGES, BLOCKED, USAGE = 0, 2, 3, 64
LABELS = NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=1)


@pytest.fixture
def home(tmp_path: Path, installed_cluster: Cluster, machine: Machine) -> ClusterFleet:
    """A fleet whose pool is one L4, not labelled yet."""
    made = ClusterFleet.create(tmp_path, installed_cluster, machine)
    pool = {"kubernetes": {"cluster": PROD, "nodeSelector": {"pool": "edge"}}, "hardware": L4}
    made.push(edge=document("FleetNode", "edge", pool))
    installed_cluster.add_node("edge-1", {"pool": "edge"}, **{GPU: "1"})
    return made


def _label(home: ClusterFleet) -> None:
    """As `fleet-agent label` does."""
    home.cluster.add_node("edge-1", {"pool": "edge", **LABELS.labels()}, **{GPU: "1"})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[int]:
    """The port of what would serve in the pod."""
    with engine_at(own_port(), tmp_path / "engine") as port:
        yield port


QUICK = {"warmupIterations": 0, "iterations": 2}
CLASS = {"vendor": "NVIDIA", "arch": "sm_90", "vram": "79Gi"}


def _push(home: ClusterFleet, port: int, **spec: Any) -> None:
    given = {"endpoint": {"port": port}, "benchmark": QUICK, **spec}
    home.push(chat=service("chat", "phi", **given))
    home.once()


def _measure(home: ClusterFleet, engine: int, folder: Path) -> None:
    (job,) = jobs(home)
    run_as_kubelet(home, job, engine, folder / "termination-log")


def test_a_model_is_measured_once_on_each_class_of_devices(
    home: ClusterFleet, engine: int, tmp_path: Path
) -> None:
    _push(home, engine)

    assert (home.dry_run().code, jobs(home)) == (OK, []), "no label tells its devices yet"
    _label(home)

    planned = home.dry_run()

    assert planned.code == CHANGES
    assert "measures phi on 1 x NVIDIA sm_89, 23 GiB: it asks pod chat-" in planned.out
    assert "clients wait behind it" in planned.out

    home.once()
    assert len(jobs(home)) == 1
    assert home.dry_run().code == OK, "while it runs nothing else is to do"
    _measure(home, engine, tmp_path)
    home.once()

    (found,) = results(home)
    assert found["data"]["model"] == "phi"
    assert found["data"]["device"] == "1 x NVIDIA sm_89, 23 GiB"
    assert float(found["data"]["tokensPerSecond"]) > 0
    home.once()
    assert jobs(home) == []
    assert home.dry_run().code == OK, "what is known is not measured again"
    assert _unknown_speeds(home) == 0

    shown = home.run("bench", "chat")
    assert shown.code == OK
    assert shown.out.startswith("default/chat phi: ")
    assert "1 x NVIDIA sm_89, 23 GiB" in shown.out
    (served,) = home.run("status", "-o", "json").json()["services"]
    (speed,) = served["placements"][0]["benchmarks"]
    assert speed["tokensPerSecond"] == pytest.approx(
        float(found["data"]["tokensPerSecond"]), abs=0.01
    )
    assert speed["stale"] is None


def test_a_person_has_a_known_model_measured_again_and_sees_it_end(
    home: ClusterFleet, engine: int, tmp_path: Path
) -> None:
    _push(home, engine)
    _label(home)
    home.once()
    _measure(home, engine, tmp_path)
    home.once()
    home.once()
    (before,) = results(home)

    asking = home.machine.start("bench", "chat", "--again", *home.words)
    asking.wait_said("default/chat: a Job is to measure it")
    # Who looks between the end that kwok makes of a Job's pod and its result sees one without.
    asking.process.send_signal(signal.SIGSTOP)
    home.once()
    _measure(home, engine, tmp_path)
    asking.process.send_signal(signal.SIGCONT)
    home.once()
    asking.wait_said("default/chat: known")

    assert asking.process.wait(timeout=PATIENCE_S) == OK
    (after,) = results(home)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["data"]["result"] != before["data"]["result"]
    home.once()
    assert home.dry_run().code == OK, "what was asked for once is measured once"


H100 = NodeLabels("NVIDIA", 79 * GIB, "sm_90", int4=True, count=1)


@pytest.fixture
def other(home: ClusterFleet) -> Iterator[str]:
    """The name of a second node, which is gone afterwards: other tests have the same cluster."""
    yield "edge-2"
    home.cluster.kubectl("delete", "node", "edge-2", "--ignore-not-found")


def test_where_no_pod_serves_a_job_fetches_the_model_and_starts_the_engine_itself(
    home: ClusterFleet, other: str, tmp_path: Path
) -> None:
    """Once; and on the one class alone that is free, and not where the service says no."""
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    any_gpu = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "22Gi"}]}
    selected = {"cluster": PROD, "nodeSelector": {"pool": "edge"}, "count": 2}
    home.push(edge=document("FleetNode", "edge", {"kubernetes": selected, "hardware": any_gpu}))
    with FileServer(data) as server:
        home.push(phi=model("phi", source=server.url, sha256=hashlib.sha256(data).hexdigest()))
        port = own_port()  # the same throughout: its pod stays where it is
        _push(home, port, contextSize=1024, benchmark=QUICK | {"everyClass": False})
        _label(home)
        h100 = {"pool": "edge", **H100.labels()}
        home.cluster.add_node(other, h100, **{GPU: "1"})
        assert "sm_90" not in home.dry_run().out

        home.cluster.add_node(other, {"pool": "edge"}, **{GPU: "1"})
        _push(home, port, contextSize=1024)
        home.cluster.add_node(other, h100, **{GPU: "1"})
        planned = home.dry_run()
        home.once()
        (job,) = (j for j in jobs(home) if "initContainers" in j["spec"]["template"]["spec"])
        again = home.dry_run()
        (tmp_path / "pod").mkdir()
        run_alone_as_kubelet(home, job, tmp_path / "pod")

    assert planned.code == CHANGES
    (told,) = (line for line in planned.out.splitlines() if "sm_90, 79 GiB" in line)
    assert "measures phi on 1 x NVIDIA sm_90, 79 GiB: none of its pods is on such a node" in told
    assert "it fetches " in told
    assert again.code == OK, again.out
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "pool": "edge",
        **{f"flexinfer.ai/gpu.{key}": text for key, text in CLASS.items()},
    }
    home.once()
    found = {c["data"]["device"]: c["data"] for c in results(home)}
    assert float(found["1 x NVIDIA sm_90, 79 GiB"]["tokensPerSecond"]) > 0
    home.once()
    assert not any("initContainers" in j["spec"]["template"]["spec"] for j in jobs(home))


def test_what_is_not_measured_in_a_cluster_says_why(home: ClusterFleet) -> None:
    _push(home, own_port(), benchmark={"enabled": False})
    _label(home)

    shown = home.run("bench", "chat")
    asked = home.run("bench", "chat", "--again")

    assert shown.code == BLOCKED
    assert "default/chat: spec.benchmark.enabled is false" in shown.err
    assert asked.code == USAGE
    assert jobs(home) == []


def _unknown_speeds(home: ClusterFleet) -> int:
    """Of how many nodes the extender does not know how fast the service is there."""
    (port,) = own_ports(1)
    at = ("--kubeconfig", str(home.cluster.kubeconfig), "--port", str(port))
    running = home.machine.start("extender", *at)
    (found,) = home.cluster.json("get", "pods", "-l", "app.kubernetes.io/component=server")["items"]
    asked = {"Pod": {**found, "apiVersion": "v1", "kind": "Pod"}, "NodeNames": ["edge-1"]}
    try:
        running.wait_said("1 nodes are known")
        body = json.dumps(asked).encode()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/prioritize", body, timeout=PATIENCE_S
        ) as said:
            json.load(said)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as said:
            lines = said.read().decode().splitlines()
    finally:
        running.end()
    name = 'fleet_extender_unknown_nodes{fact="speed"} '
    return next(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


def test_a_measurement_that_failed_is_told_as_an_event_and_waits(home: ClusterFleet) -> None:
    _push(home, own_port())
    _label(home)
    home.once()
    (job,) = jobs(home)
    ended_pod(home, job["metadata"]["name"])

    home.once()

    uid = home.cluster.json("get", "inferenceservice", "chat")["metadata"]["uid"]
    events = home.cluster.json("get", "events.events.k8s.io")["items"]
    (told,) = [
        event
        for event in events
        if event["reason"] == "BenchmarkFailed" and event["regarding"]["uid"] == uid
    ]
    assert (
        "phi on 1 x NVIDIA sm_89, 23 GiB was not measured (attempt 1: it left no result)"
        in (told["note"])
    )
    assert [j["metadata"]["uid"] for j in jobs(home)] == [job["metadata"]["uid"]]
    assert home.dry_run().code == OK, "its pause is not over"


def test_a_result_that_somebody_edited_goes_and_is_measured_again_and_all_go_with_the_service(
    home: ClusterFleet, engine: int, tmp_path: Path
) -> None:
    _push(home, engine)
    _label(home)
    home.once()
    _measure(home, engine, tmp_path)
    home.once()
    home.once()
    (found,) = results(home)
    name = found["metadata"]["name"]
    home.cluster.kubectl("patch", "configmap", name, "-p", '{"data": {"tokensPerSecond": "9999"}}')

    planned = home.dry_run()
    home.once()

    assert "was edited by hand (tokensPerSecond); remove it, and measure again" in planned.out
    assert results(home) == []
    assert len(jobs(home)) == 1

    home.push(chat=None)
    home.once()

    assert jobs(home) == []
    assert home.dry_run().code == OK
