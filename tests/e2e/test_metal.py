"""Metal: an engine that the agent starts has its whole model on the GPU of a Mac, and answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.fleets import document
from tests.support.llama_server import llama_server
from tests.support.reconciler import Fleet, Machine

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "darwin", reason="only a Mac has Metal"),
]


@pytest.fixture
def talkative(tmp_path: Path) -> Path:
    """The llama-server of this Mac, saying where it puts a model."""
    listed = subprocess.run((llama_server(), "--list-devices"), capture_output=True, text=True)
    if not re.search(r"^\s+(MTL|Metal)\d*:", listed.stdout + listed.stderr, re.MULTILINE):
        pytest.skip(f"llama-server finds no Metal device here: {listed.stdout}")
    program = tmp_path / "talkative/llama-server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{llama_server()}" "$@" --verbosity 4\n')
    program.chmod(0o755)
    return program


def test_every_layer_is_on_the_gpu_and_it_answers(
    machine: Machine, fleet: Fleet, talkative: Path
) -> None:
    fleet.repo.publish({"fleet.yaml": document("Fleet", "fleet", {"drift": "report"})})
    fleet.push_service("chat")

    machine.start("-C", fleet.url, "--local", "--llama-server", str(talkative))
    chat = machine.wait_ready("chat")

    assert chat.endpoint
    assert complete(chat.endpoint)
    log = "".join(p.read_text(errors="replace") for p in machine.state.glob("logs/*/*.log"))
    offloaded = re.findall(r"offloaded (\d+)/(\d+) layers to GPU", log)
    assert offloaded, log[-4000:]
    assert {on for on, _ in offloaded} == {total for _, total in offloaded}
