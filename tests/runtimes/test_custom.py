"""Any program of an image as a service: what its author says of it is what is counted and asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from agent.pod.engine import Engine
from reconciler.api.errors import UsageError
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.apis import apis
from reconciler.runtimes.runtime import NodeFacts
from reconciler.runtimes.settings import pod_settings, settings
from tests.support.engines import render, service, workload
from tests.support.fleets import document
from tests.support.manifests import desired_of, pool

GIB = 2**30
CARDS = {"devices": [{"vendor": "NVIDIA", "memory": "24Gi"}] * 2}


@pytest.mark.parametrize(
    ("hardware", "spec", "needs", "said"),
    [
        ({}, {"memory": "12Gi"}, {"host": 12}, []),
        (CARDS, {"memory": "12Gi"}, {"device0": 12}, []),
        (CARDS, {"memory": "30Gi", "devices": 2}, {"device0": 15, "device1": 15}, []),
        (CARDS, {"memory": "12Gi", "gpuLayers": 0}, {"host": 12}, []),
        ({}, {}, {}, ["MemoryUnknown"]),
        ({}, {"memory": "100Gi"}, None, ["MemoryFits"]),
        (CARDS, {"memory": "30Gi"}, None, ["MemoryFits"]),
    ],
)
def test_the_memory_that_its_author_states_is_counted_where_it_is_taken(
    hardware: dict[str, Any], spec: dict[str, Any], needs: dict[str, int] | None, said: list[str]
) -> None:
    memory = {"memory": spec.pop("memory")} if "memory" in spec else {}
    stated = {"runtime": "custom", "image": "a:1", "runtimeOptions": memory, **spec}

    found = desired_of(
        pool(hardware={"memory": "64Gi", **hardware}), document("InferenceService", "chat", stated)
    ).assignment

    made = [{n.pool: n.bytes // GIB for n in w.needs} for w in found.workloads]
    assert made == ([] if needs is None else [needs])
    assert [f.rule for f in (*found.warnings, *(h.finding for h in found.holds))] == said


_HEALTHZ = {"httpGet": {"path": "/healthz", "port": 9000}}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "/health"),
        ({"probeOverrides": {"startup": _HEALTHZ}}, "/healthz"),
        ({"probeOverrides": {"readiness": {"httpGet": {"path": "/a", "port": "http"}}}}, "/a"),
        ({"probeOverrides": {"readiness": {"httpGet": {"path": "/a", "port": 9001}}}}, "/health"),
        ({"probeOverrides": {"readiness": {"exec": {"command": ["a"]}}}}, "/health"),
        ({"probeOverrides": {"liveness": {"httpGet": "a"}}}, "/health"),
        (
            {"probeOverrides": {"startup": _HEALTHZ}, "runtimeOptions": {"probePath": "/b"}},
            "/b",
        ),
    ],
)
def test_it_is_asked_where_its_author_says(spec: dict[str, Any], path: str) -> None:
    wanted = service(runtime="custom", containerPort=9000, **spec)
    made = workload(wanted)
    in_pods = replace(made, settings={**made.settings, **pod_settings(wanted)})

    assert RUNTIMES["custom"].command(in_pods, NodeFacts()).probe.path == path


@pytest.mark.parametrize(
    ("speaks", "paths"),
    [
        ("none", []),
        ("chat", ["/v1/chat/completions", "/v1/completions"]),
        ("embeddings", ["/v1/embeddings"]),
        ("rerank", ["/v1/rerank"]),
    ],
)
def test_it_is_for_what_its_author_says_that_it_speaks(speaks: str, paths: list[str]) -> None:
    row = RUNTIMES["custom"]
    values = settings(service(runtime="custom", runtimeOptions={"speaks": speaks}), row)

    assert [api.path for api in apis(row, values, {})] == paths


class _Program(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def program() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Program) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_companion_asks_the_path_that_it_is_told_and_nothing_else(program: int) -> None:
    told = Engine.beside("custom", program, (), None, probe_path="/healthz")
    untold = Engine.beside("custom", program, (), None)

    assert told.probe(proven=False).ready
    assert not untold.probe(proven=False).ready
    with pytest.raises(UsageError, match="--name: llama-server serves a model"):
        Engine.beside("llama-server", program, (), None)


def test_a_variable_may_hold_anything_but_a_secret() -> None:
    row = RUNTIMES["custom"]

    assert row.check_env("PYTHONPATH") is None
    assert "secrets" in (row.check_env("CIVITAI_API_TOKEN") or "")
    assert render(service(runtime="custom", env=[{"name": "A", "value": "b"}])).env["A"] == "b"
