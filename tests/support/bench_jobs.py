"""The Jobs by which models are measured in a cluster. Where a kubelet would start their container,
a test runs it as a process, against an engine here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconciler.runtimes.runtime import NodeFacts
from tests.support import engines, pods
from tests.support.cluster_fleet import ClusterFleet
from tests.support.engines import Server, render
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.wait import wait_for

ANY_NOISE = ("--max-variation", "1000")


@contextmanager
def engine_at(port: int, folder: Path, *, host: str = "127.0.0.1", **shape: int) -> Iterator[int]:
    """What would serve in a pod, with a model of that shape (`layers`, `embedding`, ...); its
    port."""
    folder.mkdir()
    facts = NodeFacts(
        binary=(str(llama_server()),),
        port=str(port),
        host=host,
        threads="1",
        directory=str(folder),
        model_paths={"tiny": str(tiny_llama(folder / "tiny.gguf", **shape))},
    )
    wanted = engines.service(contextSize=1024)
    with Server(render(wanted, facts), port, folder) as started:
        started.wait_ready()
        yield port


def jobs(home: ClusterFleet) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = home.cluster.json("get", "jobs", "-A")["items"]
    return found


def results(home: ClusterFleet) -> list[dict[str, Any]]:
    """The ConfigMaps."""
    listed = home.cluster.json("get", "configmaps", "-l", "app.kubernetes.io/component=benchmark")
    found: list[dict[str, Any]] = listed["items"]
    return found


def run_as_kubelet(home: ClusterFleet, job: dict[str, Any], port: int, log: Path) -> None:
    """The container of a Job as a process, against the engine at a port here, however its runs
    differ; then the Job's pod tells of its end."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["fleet-agent", "pod", "bench"]
    words = list(container["args"])
    words[words.index("--host") + 1] = "127.0.0.1"
    words[words.index("--port") + 1] = str(port)
    _measure(home, job, words, log, {"FLEET_NODE": "one-of-its-class"})


def run_alone_as_kubelet(home: ClusterFleet, job: dict[str, Any], folder: Path) -> None:
    """All containers of a Job that starts an engine itself, each as a process, in their order and
    with their arguments; then the Job's pod tells of its end."""
    pod, words = pods.Pod(folder, own=0), dict(pods.ours((job,)))
    fetched = pods.run("fetch", *pod.here(words["fetch"]), "--keep-free", "0")
    assert fetched.code == 0, fetched.err
    (engine,) = (c for c in pods.containers((job,)) if c["name"] == "engine")
    (port,) = (found["containerPort"] for found in engine["ports"])
    started = engine["startupProbe"]["httpGet"]["path"]
    with pod.engine((job,)):
        wait_for(lambda: _answers(port, started), "its engine has started")
        _measure(home, job, words["bench"], folder / "log", {"FLEET_NODE": "edge-2"})


def _answers(port: int, path: str) -> bool:
    try:
        return pods.get(port, path)[0] == 200
    except OSError:
        return False


def _measure(
    home: ClusterFleet, job: dict[str, Any], words: list[str], log: Path, env: dict[str, str]
) -> None:
    ended = pods.run("bench", *words, "--termination-log", str(log), *ANY_NOISE, env=env)
    assert ended.code == 0, ended.err
    name = ended_pod(home, job["metadata"]["name"])
    state = {"terminated": {"exitCode": ended.code, "message": log.read_text()}}
    status = {"containerStatuses": [{"name": "bench", "state": state, "image": "i", "imageID": "",
                                     "ready": False, "restartCount": 0}]}  # fmt: skip
    words = ["patch", "pod", name, "--subresource=status", "-p", json.dumps({"status": status})]
    home.cluster.kubectl(*words)


def ended_pod(home: ClusterFleet, job: str) -> str:
    """kwok ends a Job's pods at once, and says nothing for them."""

    def names() -> list[str]:
        live = home.cluster.json("get", "pods", "-l", f"job-name={job}")["items"]
        return [p["metadata"]["name"] for p in live if p["status"]["phase"] == "Succeeded"]

    wait_for(lambda: bool(names()), "its pod ends")
    home.cluster.wait("--for=condition=Complete", f"job/{job}")
    return names()[0]
