"""A repository written for LLMKube at a real API server, as docs/llmkube.md says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.llmkube import LlmkubeServices, install_definitions, pods_of
from tests.support.reconciler import Machine
from tests.support.typed_pages import Page

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, CHANGES = 0, 2

THEIRS = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: llm, namespace: flux-system}
spec: {interval: 1h, path: ./apps/llm, prune: true}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: qwen, namespace: default}
spec:
  source: https://models.test/qwen-q4_k_m.gguf
  format: gguf
  quantization: Q4_K_M
  refreshPolicy: IfNotPresent
  hardware:
    accelerator: cpu
    gpu: {enabled: true, layers: 0}
  resources: {cpu: "2", memory: 4Gi}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: InferenceService
metadata: {name: qwen, namespace: default}
spec:
  modelRef: qwen
  runtime: llamacpp
  replicas: 1
  image: ghcr.io/ggml-org/llama.cpp:server
  contextSize: 8192
  resources: {cpu: "1", memory: 2Gi}
  endpoint: {port: 8080, path: /v1/chat/completions, type: ClusterIP}
  nodeSelector: {pool: edge}
  podLabels: {team: search}
  rolloutPolicy: {waitForIdle: true, idleTimeoutSeconds: 120}
  reasoningBudget: 0
  extraArgs: [--metrics, --temp, "0.6", -c, "8192"]
  probeOverrides: {startup: {periodSeconds: 10, failureThreshold: 60}}
"""


@pytest.fixture
def home(tmp_path: Path, installed_cluster: Cluster, machine: Machine) -> ClusterFleet:
    """Their documents, and the one file that names the fleet; no FleetNode."""
    made = ClusterFleet.create(tmp_path, installed_cluster, machine)
    made.push(edge=None, phi=None, theirs=THEIRS)
    return made


def test_it_is_planned_applied_and_ready_as_its_documents_say(home: ClusterFleet) -> None:
    checked = home.run("validate")
    plan = home.dry_run()
    home.once()
    after = home.dry_run()

    assert checked.code == OK, checked.out + checked.err
    assert plan.code == CHANGES, plan.out + plan.err
    assert "InferenceService default/qwen" in plan.out
    assert (after.code, "nothing to do" in after.out) == (OK, True)

    pod = home.cluster.json("get", "deployment", "qwen")["spec"]["template"]
    (engine,) = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["team"] == "search"
    assert pod["spec"]["nodeSelector"] == {"pool": "edge"}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 135
    assert engine["resources"] == {"requests": {"cpu": "1", "memory": "2Gi"}}
    assert engine["startupProbe"]["failureThreshold"] == 60
    assert {"--reasoning-budget", "--temp"} <= set(engine["args"])
    assert home.cluster.json("get", "fleetnodes")["items"] == []


def test_our_definitions_take_their_documents(home: ClusterFleet) -> None:
    _, *documents = THEIRS.split("---\n")

    answer = home.cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        text="---\n".join(documents),
    )

    assert answer.count("serverside-applied (server dry run)") == len(documents)


def test_nodes_are_added_and_the_cluster_is_taken_over_as_the_page_says(
    tmp_path: Path, own_cluster: Cluster, machine: Machine
) -> None:
    cluster, written = own_cluster, LlmkubeServices(("draw",))
    made = ClusterFleet.create(tmp_path, cluster, machine)
    install_definitions(cluster, "InferenceService", "Model")
    cluster.add_node("gpu-1", {"nvidia.com/gpu.present": "true"}, **{"nvidia.com/gpu": "2"})
    written.write(cluster)
    stood = pods_of(cluster, "draw")
    fleet, node = _typed_documents()
    texts = {name.removesuffix(".yaml"): text for name, text in written.files().items()}
    made.push(edge=None, phi=None, fleet=fleet, **texts)
    words = ("--cluster", "home=test", "--kubeconfig", str(cluster.kubeconfig))
    at = ("-C", str(made.repo.remote), *words)

    without = machine.reconcile("plan", *at)
    made.push(gpu=node)
    plan = machine.reconcile("plan", *at)
    taken = machine.reconcile("install", "--take-over", *words)
    adopted = machine.reconcile("apply", *at)

    assert (without.code, plan.code) == (CHANGES, CHANGES), without.out + plan.out
    for said in (without, plan):
        assert "adopted as it stands, with its pods" in said.out
        assert "NotOurs" not in said.out
    assert "does not state its memory" in without.err
    assert "does not state its memory" not in plan.err
    assert "FleetNode gpu" in plan.out
    assert (taken.code, adopted.code) == (OK, OK), taken.err + adopted.err
    assert "backup of 2 definitions and 2 objects" in taken.err
    assert pods_of(cluster, "draw") == stood
    assert [n["metadata"]["name"] for n in cluster.json("get", "fleetnodes")["items"]] == ["gpu"]


def _typed_documents() -> list[str]:
    """What the ten minutes write: the Fleet and the FleetNode."""
    page = Page.read("docs/llmkube.md").text
    blocks = re.findall(r"^ +```yaml\n(.*?)^ +```$", page, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in blocks]
