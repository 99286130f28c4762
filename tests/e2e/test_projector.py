"""A model that sees: its projector comes with it, a real llama-server loads both, and answers."""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.observation import Instance
from tests.support.fleets import model, service
from tests.support.gguf_models import tiny_projector
from tests.support.http import FileServer
from tests.support.llama_server import llama_server
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

ONLINE = {"FLEET_OFFLINE": "0"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server with a projector."""
    with FileServer(tiny_projector(tmp_path / "far.gguf").read_bytes()) as server:
        yield server


def _picture() -> str:
    """Eight times eight red pixels, as a data URL of a PNG."""
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8)
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", head), (b"IDAT", rows), (b"IEND", b""))
    )
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks)
    return f"data:image/png;base64,{picture.decode()}"


def _prompt_tokens(instance: Instance, name: str = "tiny") -> int:
    """How many tokens a picture and a word became for the model. Raises HTTPError: it is blind."""
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": _picture()}},
    ]
    body = {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}
    url = f"{instance.endpoint}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return int(json.load(answer)["usage"]["prompt_tokens"])


def _projector_of(machine: Machine, instance: Instance) -> Path:
    """The file that its process was given."""
    (process,) = [p for p in machine.processes() if p.pid == instance.pid]
    argv = process.cmdline()
    return Path(argv[argv.index("--mmproj") + 1])


def test_a_model_with_a_projector_sees_and_another_projector_is_another_process(
    machine: Machine, fleet: Fleet, server: FileServer, tmp_path: Path
) -> None:
    fleet.repo.publish(
        {
            "models/tiny.yaml": model("tiny", source="models/tiny.gguf", mmproj=server.url),
            "services/chat.yaml": service("chat", "tiny"),
            "services/many.yaml": service(
                "many", None, runtime="llamacpp-router", models=[{"name": "tiny"}]
            ),
        }
    )
    words = ("-C", fleet.url, "--local", "--llama-server", str(llama_server()))

    said = machine.reconcile("--dry-run", "-o", "json", *words, env=ONLINE).json()
    changes = {change["ref"]["name"]: change["impact"] for change in said["changes"]}
    models = (fleet.repo.work / "models/tiny.gguf").stat().st_size + len(server.data)
    assert sorted(i["downloadBytes"] for i in changes.values()) == [0, models]
    explained = machine.reconcile("explain", "chat", *words, env=ONLINE).out
    assert "projector  " in explained
    assert "--mmproj " in explained

    machine.start(*words)
    first, router = machine.wait_ready("chat"), machine.wait_ready("many")
    assert _prompt_tokens(first) == _prompt_tokens(router) > 4
    held = _projector_of(machine, first)
    assert held.read_bytes() == server.data
    assert held.is_relative_to(machine.state / "models")

    other = tiny_projector(tmp_path / "other.gguf", seed=1).read_bytes()
    fleet.repo.publish(
        {
            "models/other.gguf": other,
            "models/tiny.yaml": model(
                "tiny", source="models/tiny.gguf", mmproj="models/other.gguf"
            ),
        }
    )
    second = machine.wait_ready("chat", not_pid=first.pid)
    assert _projector_of(machine, second).read_bytes() == other
    assert _prompt_tokens(second) > 4
    wait_for(lambda: _routed(machine) == other, "the router's child has the other one")

    plain = model("tiny", source="models/tiny.gguf")
    fleet.repo.publish({"models/tiny.yaml": plain, "fleet.yaml": _KEEP_ONE})
    blind = machine.wait_ready("chat", not_pid=second.pid)
    with pytest.raises(urllib.error.HTTPError, match="500"):
        _prompt_tokens(blind)
    wait_for(lambda: not held.exists(), "a projector that no revision needs is removed")


_KEEP_ONE = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: Fleet
metadata: {name: home}
spec: {keepRevisions: 1}
"""


def _routed(machine: Machine) -> bytes | None:
    """The projector of the child that the router has for `tiny`."""
    router = machine.instance("many")
    for process in machine.processes():
        argv = process.cmdline() if process.ppid() == (router and router.pid) else []
        if "--mmproj" in argv:
            return Path(argv[argv.index("--mmproj") + 1]).read_bytes()
    return None
