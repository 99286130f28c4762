"""A cluster on which the real LLMKube rendered twenty services is taken over, and given back.

LLMKUBE is a checkout of it, whose controller Go builds:
`LLMKUBE=../LLMKube make test T=tests/e2e/test_llmkube_real.py`
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from reconciler.cli import main
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.llmkube import LlmkubeServices
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

SOURCE = os.environ.get("LLMKUBE", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.cluster,
    pytest.mark.skipif(not SOURCE, reason="LLMKUBE names no checkout of it"),
]
CHAT, DRAW = (LlmkubeServices((name,)).files()[f"{name}.yaml"] for name in ("chat", "draw"))
DOCUMENTS = {f"chat-{n}": CHAT.replace("chat", f"chat-{n}") for n in range(10)} | {
    f"draw-{n}": DRAW.replace("draw", f"draw-{n}") for n in range(10)
}
SHARED = Path(__file__).parents[1] / "cases" / "llmkube" / "shared.yaml"
PODS = 30  # a chat has two replicas


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    program = tmp_path / "llmkube-controller"
    subprocess.run(("go", "build", "-o", str(program), "./cmd"), cwd=SOURCE, check=True)
    return program


@pytest.fixture
def home(
    tmp_path: Path, own_cluster: Cluster, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> ClusterFleet:
    """Its definitions and documents; the same documents in git."""
    monkeypatch.chdir(tmp_path)  # for the backup
    made = ClusterFleet.create(tmp_path, own_cluster, machine)
    made.push(edge=None, phi=None, **DOCUMENTS)
    own_cluster.add_node("gpu-1", {}, **{"nvidia.com/gpu": "20"})
    definitions = Path(SOURCE, "config", "crd", "bases")
    own_cluster.kubectl("apply", "--server-side", "-f", str(definitions))
    for name in ("models", "inferenceservices"):
        wait_for(partial(is_served, own_cluster, name), f"{name} are served")
    cluster_wide = [*yaml.safe_load_all(SHARED.read_text())][:2]  # its claim it makes itself
    own_cluster.apply(*cluster_wide, *DOCUMENTS.values())
    return made


def test_no_pod_is_replaced_on_the_way_and_what_changed_alone_on_the_way_back(
    home: ClusterFleet, controller: Path, tmp_path: Path
) -> None:
    cluster = home.cluster
    with running(controller, cluster, tmp_path):
        wait_for(lambda: len(pods(cluster)) == PODS, "its pods run")
    rendered = pods(cluster)

    at = ("--cluster", "prod=test", "--kubeconfig", str(cluster.kubeconfig))
    assert main(["install", *at, "--take-over"]) == 0
    home.once()
    assert pods(cluster) == rendered

    home.push(**{"chat-0": DOCUMENTS["chat-0"].replace("contextSize: 4096", "contextSize: 8192")})
    home.once()
    wait_for(lambda: len(pods(cluster)) == PODS, "the old pods are gone")
    changed = pods(cluster)
    assert services_of(changed.keys() ^ rendered.keys()) == {"chat-0"}

    [backup] = tmp_path.glob("fleet-takeover-*.yaml")
    kept = [*yaml.safe_load_all(backup.read_text())]
    theirs = [d for d in kept if d["kind"] == "CustomResourceDefinition"]
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    cluster.kubectl(*words, text=yaml.safe_dump_all(theirs))
    with running(controller, cluster, tmp_path):
        wait_for(lambda: pods(cluster) != changed, "it renders what was changed")
        wait_for(lambda: len(pods(cluster)) == PODS, "the old pods are gone")
    assert services_of(pods(cluster).keys() ^ changed.keys()) == {"chat-0"}


def is_served(cluster: Cluster, kind: str) -> bool:
    return "No resources" in cluster.kubectl("get", kind, check=False)


@contextmanager
def running(controller: Path, cluster: Cluster, folder: Path) -> Iterator[None]:
    """Beside the cluster, where no look of ours sees it."""
    words = ("--health-probe-bind-address=0", "--metrics-bind-address=0")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with (folder / "controller.log").open("ab") as log:
        program = subprocess.Popen((controller, *words), env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            program.terminate()
            program.wait(30)


def pods(cluster: Cluster) -> dict[str, str]:
    """Those that are not going, with their uids."""
    found = (each["metadata"] for each in cluster.json("get", "pods")["items"])
    return {each["name"]: each["uid"] for each in found if "deletionTimestamp" not in each}


def services_of(names: set[str]) -> set[str]:
    return {name.rsplit("-", 2)[0] for name in names}
