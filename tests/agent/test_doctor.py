"""`fleet-agent doctor`: does an engine run here? With a model that is written for the question."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.cli import main
from agent.doctor.tiny import WRITERS
from reconciler.gguf.header import read_path
from tests.support.llama_server import llama_server
from tests.support.wait import PATIENCE_S, wait_for

OK, BLOCKED, USAGE, INTERRUPTED = 0, 3, 64, 130


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it may write, to see that nothing stays."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["doctor", "-o", "json", *words])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return code, found


def program(folder: Path, text: str) -> str:
    path = folder / "llama-server"
    path.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit 0\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.e2e
@pytest.mark.parametrize("runtime", ["llama-server", "mlx-lm"])
def test_an_engine_that_is_here_serves_and_nothing_of_it_stays(
    runtime: str, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    code, found = doctor(capsys, "--runtime", runtime, "--timeout", "2m")

    assert [(f["runtime"], f["verdict"]) for f in found] == [(runtime, "works")], found
    assert code == OK
    assert found[0]["version"]
    assert list(temporary.iterdir()) == []
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


@pytest.mark.e2e
@pytest.mark.llama_server
def test_a_real_llama_server_and_its_router_serve(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--runtime", "llama-server", "--runtime", "llamacpp-router")

    code, found = doctor(capsys, *asked, "--llama-server", str(llama_server()))

    assert [f["verdict"] for f in found] == ["works", "works"], found
    assert code == OK
    assert list(temporary.iterdir()) == []


def test_a_program_that_refuses_what_every_service_is_given_fails_with_its_words(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = program(tmp_path, "echo 'error: unknown argument: --kv-unified' >&2; exit 1")

    code, found = doctor(capsys, "--runtime", "llama-server", "--llama-server", old)

    assert (code, found[0]["verdict"], found[0]["program"]) == (BLOCKED, "fails", old)
    assert "BadFlag: error: unknown argument: --kv-unified" in found[0]["message"]
    assert "use another version of this engine" in found[0]["message"]
    assert found[0]["log"][-1] == "error: unknown argument: --kv-unified"
    assert list(temporary.iterdir()) == []


def test_a_program_that_never_answers_is_given_up_and_ended(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mute = program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    asked = ("--runtime", "llama-server", "--llama-server", mute)

    def has_begun() -> bool:
        code, found = doctor(capsys, *asked, "--timeout", "500ms")
        assert (code, found[0]["verdict"]) == (BLOCKED, "fails")
        assert found[0]["message"].startswith("not ready after 0.5 s: ")
        return (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text())

    wait_for(has_begun, "a trial in which the program gets to its first line")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_whoever_loses_patience_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    """Twice, as with a key held down, or a `timeout` that tells the whole group."""
    mute = program(tmp_path, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done")
    words = ("doctor", "--runtime", "llama-server", "--llama-server", mute, "--timeout", "10m")
    running = subprocess.Popen(
        (Path(sys.executable).parent / "fleet-agent", *words),
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it started")

    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGINT)

    assert running.wait(PATIENCE_S) == INTERRUPTED
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert list(temporary.iterdir()) == []


def test_a_path_that_is_wrong_is_no_engine_that_is_merely_not_here(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = doctor(capsys, "--runtime", "vllm", "--vllm", "/nowhere/vllm")

    assert (code, found[0]["verdict"]) == (BLOCKED, "fails")
    assert "--vllm /nowhere/vllm: no executable file there" in found[0]["message"]


def test_an_engine_that_is_not_here_has_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    code, found = doctor(capsys, "--runtime", "vllm")

    assert (code, found[0]["verdict"]) == (BLOCKED, "absent")
    assert "pip install vllm" in found[0]["message"]


def test_an_unknown_runtime_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--runtime", "ollama"]) == USAGE
    assert "no runtime ollama (known: llama-server, " in capsys.readouterr().err


def test_the_model_it_writes_is_small_and_our_reader_knows_it(tmp_path: Path) -> None:
    path = WRITERS["gguf"](tmp_path)

    assert path.stat().st_size < 1 << 20
    assert read_path(path).architecture == "llama"
