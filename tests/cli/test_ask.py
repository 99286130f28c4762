"""Which of a service's instances can be asked from here."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from reconciler.api.meta import service_ref
from reconciler.cli import main
from reconciler.cli.ask import Reach
from reconciler.core.observation import Instance
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from tests.support.fleets import document, model, service, write_fleet
from tests.support.ports import own_port


@pytest.mark.parametrize(
    ("target", "endpoint", "has"),
    [
        ("node/mac", "http://127.0.0.1:8080", True),
        ("node/mac", None, False),
        ("node/gpu", "http://127.0.0.1:8080", False),  # of that machine, and here another's
        ("node/gpu", "http://[::1]:8080", False),
        ("node/gpu", "http://localhost:8080", False),
        ("node/gpu", "http://10.0.0.7:8080", True),
        ("cluster/prod", "http://chat.default.svc:8080", True),
        ("cluster/eu", "http://chat.default.svc:8080", False),
    ],
)
def test_what_has_an_address_from_node_mac(target: str, endpoint: str | None, has: bool) -> None:
    instance = Instance(
        *(service_ref("chat"), target, "llama-server", {}, "0", None, None),
        ready=True,
        reason="Ready",
        endpoint=endpoint,
    )

    prod = ApiServer.of("prod", ClusterCredentials(lambda: Grant("http://127.0.0.1:1")))
    assert Reach("mac", {"prod": prod}).has(instance) is has


def test_what_is_suspended_is_said_with_what_lets_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files = {
        "here.yaml": document("FleetNode", "here", {"agent": {}, "hardware": {"memory": "16Gi"}}),
        "model.yaml": model("tiny", source="https://models.test/tiny.gguf"),
        "chat.yaml": service("chat", "tiny", suspend=True),
    }
    write_fleet(tmp_path / "fleet", files)

    assert main(["ask", "chat", "Hello", "--local", "-C", str(tmp_path / "fleet")]) == 3

    assert "does not run: Suspended; `reconcile resume chat` lets it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (["chat", ""], b"", "the question is empty"),
        (["chat", "-"], b" \n", "the question is empty"),
        (["chat", "-"], b"\xff\xd8\xff\xe0", "stdin: is no text in UTF-8; a picture goes with"),
        (["Hello", "chat"], b"", "; the service comes first: reconcile ask chat ..."),
        (["--local", "chat", "Hello"], b"", "--local alone comes last"),
    ],
    ids=["no question", "nothing on stdin", "no text", "turned round", "behind --local"],
)
def test_what_was_typed_otherwise_is_said_with_what_to_type(
    words: list[str],
    typed: bytes,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed)))
    files = {
        "here.yaml": document("FleetNode", "here", {"agent": {}, "hardware": {"memory": "16Gi"}}),
        "model.yaml": model("tiny", source="https://models.test/tiny.gguf"),
        "chat.yaml": service("chat", "tiny"),
    }
    write_fleet(tmp_path / "fleet", files)

    assert main(["ask", *words, "-C", str(tmp_path / "fleet")]) == 64

    assert said in capsys.readouterr().err


def test_without_words_only_the_name_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ask"])

    assert "required: NAME;" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 3, "default/chat: whether it runs is not known, node/far gives no answer: "),
        (["--local=here"], 64, "chat: is not for this machine: leave --local out"),
        (["--local=far"], 3, "`reconcile plan` says why"),
    ],
    ids=["its node is away", "it is another node's", "it was never started"],
)
def test_what_gives_no_answer_is_said_with_what_to_do(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    memory = {"hardware": {"memory": "16Gi"}}
    far = {"agent": {"url": f"http://127.0.0.1:{own_port()}"}, **memory}
    files = {
        "far.yaml": document("FleetNode", "far", far),
        "here.yaml": document("FleetNode", "here", {"agent": {}, **memory}),
        "model.yaml": model("tiny", source="https://models.test/tiny.gguf"),
        "chat.yaml": service("chat", "tiny", placement={"nodes": ["far"]}),
    }
    write_fleet(tmp_path / "fleet", files)

    assert main(["ask", "chat", "Hello", "-C", str(tmp_path / "fleet"), *words]) == code

    assert said in capsys.readouterr().err
