"""What is rendered for pods runs as it stands: the programs read their arguments, and the engine is
given what the Job brought. There is no kubelet here: its part is played by this test."""

from __future__ import annotations

import hashlib
import signal
import threading
from pathlib import Path

import pytest

from agent.cli import parser_of
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.manifests import rendered
from tests.support.pods import (
    Pod,
    completion,
    containers,
    get,
    ours,
    run,
    running,
    wait_readyz,
)
from tests.support.ports import own_port
from tests.support.routers import listed, stream
from tests.support.wait import PATIENCE_S, wait_for

CASES = Path(__file__).parents[1] / "cases" / "kube"
BRINGS_ITS_OWN = (
    "custom",
    "claim-with-model",
    "image-with-model",
)  # cases in which nothing is fetched
FLEET = """
apiVersion: inference.llmkube.dev/v1alpha1
kind: FleetNode
metadata: {{name: cpu}}
spec:
  kubernetes: {{cluster: prod, cache: "claim:models"}}
  hardware: {{memory: 64Gi}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {{name: tiny}}
spec: {{source: "{source}"{more}}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: InferenceService
metadata: {{name: chat}}
spec:
  modelRef: tiny
  placement: {{nodes: [cpu]}}
  endpoint: {{port: {port}}}
  contextSize: 512
  extraArgs: [--context-shift]
  rollout: {{drainTimeout: 20s}}
"""


@pytest.mark.parametrize("case", sorted(CASES.glob("*/fleet.yaml")), ids=lambda p: p.parent.name)
def test_our_programs_read_the_arguments_that_are_rendered_for_them(case: Path) -> None:
    parser = parser_of("pod")
    found = ours(rendered(case.read_text()))

    read = [parser.parse_args([program, *words]) for program, words in found]

    fetches = set() if case.parent.name.startswith(BRINGS_ITS_OWN) else {"fetch"}
    assert {args.action for args in read} >= {"companion", *fetches}
    for args in read:
        if args.action == "companion":
            assert args.runtime
            assert args.port > 0
            assert args.listen[1] == 9091
            assert args.name or args.probe_path


def test_the_probes_ask_what_the_companion_answers() -> None:
    text = FLEET.format(source="https://models.test/a.gguf", more="", port=9000)
    found = {c["name"]: c for c in containers(rendered(text))}
    (port,) = (p["containerPort"] for p in found["companion"]["ports"])
    asked = [
        found["engine"]["readinessProbe"]["httpGet"],
        found["engine"]["lifecycle"]["preStop"]["httpGet"],
        found["companion"]["livenessProbe"]["httpGet"],
    ]

    assert [(a["path"], a["port"]) for a in asked] == [
        ("/readyz", port),
        ("/drain", port),
        ("/healthz", port),
    ]


@pytest.mark.e2e
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "by-source"])
def test_a_rendered_service_comes_up_answers_drains_and_ends(tmp_path: Path, pinned: bool) -> None:
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    more = f", sha256: {hashlib.sha256(data).hexdigest()}" if pinned else ""
    port, own = own_port(), own_port()
    pod = Pod(tmp_path, own)

    with FileServer(data) as server:
        manifests = rendered(FLEET.format(source=server.url, more=more, port=port))
        programs = {name: pod.here(words) for name, words in ours(manifests)}
        wait_log = tmp_path / "wait.log"
        with running(wait_log, "wait", *programs["wait"]) as waits:
            wait_for(lambda: "not there yet" in waits.said, "it waits for the Job")

            job = run("fetch", *programs["fetch"], "--keep-free", "0")

            assert job.code == 0, job.err
            assert waits.ended() == 0, waits.said

    with (
        running(tmp_path / "companion.log", "companion", *programs["companion"]) as companion,
        pod.engine(manifests) as process,
    ):
        wait_readyz(own, 200)
        assert completion(port, "tiny")
        answers: list[tuple[int, str]] = []
        hook = threading.Thread(target=lambda: answers.append(get(own, "/drain")))
        with stream(port, "tiny"):
            hook.start()
            wait_readyz(own, 503)
            wait_for(lambda: "waiting for 1 request" in companion.said, "it waits")
        hook.join(PATIENCE_S)
        assert [status for status, _ in answers] == [200]

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
        companion.process.terminate()
        assert companion.ended() == 0


ROUTER = """
apiVersion: inference.llmkube.dev/v1alpha1
kind: FleetNode
metadata: {{name: cpu}}
spec:
  kubernetes: {{cluster: prod, cache: "claim:models"}}
  hardware: {{memory: 64Gi}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {{name: one}}
spec: {{source: "{one}"}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {{name: two}}
spec: {{source: "{two}"}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: InferenceService
metadata: {{name: switch}}
spec:
  runtime: llamacpp-router
  models: [{{name: one}}, {{name: two, preload: true}}]
  placement: {{nodes: [cpu]}}
  endpoint: {{port: {port}}}
  contextSize: 512
"""


@pytest.mark.e2e
def test_a_rendered_router_comes_up_with_the_model_to_be_preloaded(tmp_path: Path) -> None:
    files = {n: tiny_llama(tmp_path / f"{n}.gguf", name=n).read_bytes() for n in ("one", "two")}
    port, own = own_port(), own_port()
    pod = Pod(tmp_path, own)
    with FileServer(b"") as server:
        folder = f"http://127.0.0.1:{server.port}/files"
        server.files = {f"/files/{name}.gguf": data for name, data in files.items()}
        urls = {name: f"{folder}/{name}.gguf" for name in files}
        manifests = rendered(ROUTER.format(**urls, port=port))
        for program, words in ours(manifests):
            if program == "fetch":
                done = run(program, *pod.here(words), "--keep-free", "0")
                assert done.code == 0, done.err
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            for name, content in manifest["data"].items():
                (pod.work / name).write_text(pod.here([content])[0])
    programs = dict(ours(manifests))

    assert run("wait", *pod.here(programs["wait"])).code == 0
    with (
        running(tmp_path / "log", "companion", *pod.here(programs["companion"])) as companion,
        pod.engine(manifests),
    ):
        wait_readyz(own, 200)
        assert listed(port)["two"]["value"] == "loaded"
        assert completion(port, "one"), "a request has it loaded in its place"
        assert get(own, "/drain")[0] == 200

    assert "asked the router" not in companion.said, "it began by itself"
