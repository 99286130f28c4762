"""Readers of what comes over the wire, as functions of bytes; a documented error ends in them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path

from agent.bench.client import _LONGEST_LINE, _timed
from agent.process.health import recogniser
from reconciler.agents.scrape import figures
from reconciler.api.errors import ModelError
from reconciler.api.plain_json import parse_json
from reconciler.kube.client.lines import LineBuffer
from reconciler.kube.crsource.documents import documents
from reconciler.kube.crsource.nodes import heard
from reconciler.kube.diff.difference import compare
from reconciler.kube.diff.managed import owned, owners
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.endpoints.heartbeats import AgentHeartbeat
from reconciler.kube.extender.wire import filter_answer, prioritize_answer, read_args
from reconciler.kube.json_text import from_json, to_json
from reconciler.kube.objects import INPUTS_ANNOTATION, id_of
from reconciler.kube.running.instances import instances
from reconciler.kube.running.pods import trouble
from reconciler.memory.config import facts_of_files
from reconciler.models.oci import _named
from reconciler.models.pip import _parse_report
from reconciler.models.tree import check_paths, entry_of, matching
from reconciler.runtimes.streamed import events
from reconciler.source.documents import read_foreign
from tests.support.builders import ref
from tests.support.kube_live import as_applied
from tests.support.kube_world import TARGET, deployment

Read = Callable[[bytes], object]


def extender(_: Path) -> Read:
    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            asked = read_args(body)
            filter_answer(asked, {})
            prioritize_answer(asked.names, [0] * len(asked.names))

    return read


def api_objects(_: Path) -> Read:
    """An answer of an API server, and each object in it as a document of a fleet."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            found = from_json(body)
            to_json(found, sort=True)
            about = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "Model"}
            documents([{**about, "metadata": {"name": "m"}, "spec": found}])

    return read


def managed_fields(_: Path) -> Read:
    """What an object says of its fields' owners and of itself, by others and in our own name."""
    want = deployment("default")

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            said = from_json(body)
            for manager in ("other", None):
                live = as_applied(want)
                rows = live["metadata"]["managedFields"]
                if manager is None:
                    rows[0]["fieldsV1"] = said
                else:
                    rows.append({"manager": manager, "operation": "Apply", "fieldsV1": said})
                live["metadata"]["annotations"][INPUTS_ANNOTATION] = body.decode(errors="replace")
                is_untouched(want, live)
                owned(live)
                for difference in compare(want, live):
                    owners(live, difference.path)
                instances(TARGET, {id_of(live): live}, {}, {})

    return read


def live_spec(_: Path) -> Read:
    """An object whose fields somebody changed to anything."""
    want = deployment("default")

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            live = as_applied(want)
            live["spec"]["template"]["spec"] = from_json(body)
            compare(want, live)
            is_untouched(want, live)

    return read


def ended_pod(_: Path) -> Read:
    def read(body: bytes) -> None:
        ended = {"exitCode": 1, "message": body.decode(errors="replace")}
        states = [{"name": "engine", "state": {"terminated": ended}}]
        trouble([{"metadata": {"name": "p"}, "status": {"containerStatuses": states}}])

    return read


def api_events(_: Path) -> Read:
    """The lines of a watch, as they come in."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            lines = LineBuffer(len(body))
            for at in range(0, len(body), 1 << 16):
                lines.take(body[at : at + (1 << 16)])

    return read


def kubeconfig(_: Path) -> Read:
    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            read_foreign(body)

    return read


def exposition(_: Path) -> Read:
    return lambda body: figures(body.decode(errors="replace"), "llamacpp:tokens")


def manifest(_: Path) -> Read:
    """A registry's manifest, and what a child of ours says of it."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError, ModelError):
            found = parse_json(body)
            layers = found.get("layers") if isinstance(found, dict) else None
            if isinstance(layers, list) and all(isinstance(layer, dict) for layer in layers):
                json.dumps(_named("team/model", layers))

    return read


def pip_report(_: Path) -> Read:
    def read(body: bytes) -> None:
        with contextlib.suppress(ModelError):
            _parse_report(body)

    return read


def cluster_agent(_: Path) -> Read:
    """What an agent wrote into the status of its FleetNode, and of its services."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            said = from_json(body)
            if not isinstance(said, dict) or not isinstance(said.get("observed"), dict):
                return
            node = {"metadata": {"name": "mac"}, "status": {"observed": said["observed"]}}
            beat = AgentHeartbeat(LeaseState.RENEWED, "now", 1.0)
            if isinstance(entry := said.get("entry"), dict):
                heard(node, {ref("chat"): entry}, beat, {})

    return read


def hub_listing(_: Path) -> Read:
    """The paths of a repository of models, as a hub lists them."""

    def read(body: bytes) -> None:
        paths = body.decode(errors="replace").split("\n")
        for judge in (
            check_paths,
            lambda paths: matching(paths, ["*a*a*a*b*.gguf"]),
            lambda paths: entry_of(paths, "gguf"),
            lambda paths: entry_of(paths, "safetensors"),
        ):
            with contextlib.suppress(ModelError):
                judge(paths)

    return read


def served_models(_: Path) -> Read:
    """The list of models of an engine."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            document = parse_json(body)
            for runtime in ("llama-server", "mlx-lm"):
                recogniser(runtime, ("chat", "other"))(document)

    return read


def engine_events(_: Path) -> Read:
    """The stream of tokens of an engine."""

    def read(body: bytes) -> None:
        with contextlib.suppress(ValueError):
            stream = BytesIO(body)
            _timed(events(iter(lambda: stream.readline(_LONGEST_LINE), b"")), 0.0)

    return read


def model_config(_: Path) -> Read:
    return lambda body: facts_of_files({"model.safetensors": 1}, body)


NODE_LIST: Iterable[bytes] = (
    json.dumps(
        {
            "Pod": {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{}]}},
            "Nodes": {"items": [{"metadata": {"name": "n", "labels": {"a": "b"}}}]},
        }
    ).encode(),
    b'{"Pod": {"metadata": {}}, "NodeNames": ["n"]}',
)
FIELDS: Iterable[bytes] = (
    json.dumps(
        {
            "f:spec": {
                "f:template": {"f:spec": {"f:containers": {'k:{"name":"e"}': {"f:image": {}}}}}
            }
        }
    ).encode(),
    b'{"models": [{"name": "chat"}], "listen": "127.0.0.1"}',
    b'{"f:spec": {"f:list": {"v:1": {}, "i:0": {}}}}',
)
POD_SPEC: Iterable[bytes] = (
    b'{"containers": [{"name": "engine", "image": "x", "args": ["a"], "env": [{"name": "A"}]}]}',
)
LAYERS: Iterable[bytes] = (
    b'{"layers": [{"digest": "sha256:00", "size": 1, "annotations":'
    b' {"org.opencontainers.image.title": "a.gguf"}}]}',
)
REPORT: Iterable[bytes] = (
    b'{"install": [{"metadata": {"requires_dist": ["a==1"]},'
    b' "download_info": {"url": "https://a/b.whl", "archive_info": {"hashes": {"sha256": "0"}}}}]}',
)
OBSERVED: Iterable[bytes] = (
    json.dumps(
        {
            "observed": {
                "agentVersion": "0.2",
                "pools": [{"name": "host", "totalBytes": 9, "budgetBytes": 8}],
                "missing": {"mlx-lm": "not installed"},
                "runtimes": ["llama-server"],
                "stopped": [{"name": "x", "namespace": "default", "inputsDigest": "d"}],
            },
            "entry": {
                "inputsDigest": "d",
                "inputs": '{"models": []}',
                "ready": True,
                "drift": [{"kind": "cosmetic", "message": "a", "since": "2026-01-01T00:00:00Z"}],
            },
        }
    ).encode(),
)
MODELS: Iterable[bytes] = (b'{"data": [{"id": "chat", "status": {"value": "loaded"}}]}',)
CONFIG: Iterable[bytes] = (b'{"model_type": "llama", "text_config": {"num_hidden_layers": 2}}',)
