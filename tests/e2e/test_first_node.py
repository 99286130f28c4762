"""docs/first-node.md, typed as it stands: every command block, in order, by somebody new."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.process.port_choice import choose_ports
from reconciler.console.value import ALL_SERVICE_PORTS
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.real_models import SMOLLM2, link_model
from tests.support.reconciler import Machine
from tests.support.typed_pages import Line, Page, Shell, shape, shell
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

PAGE = Page.read("docs/first-node.md")
PROGRAMS = Path(sys.executable).parent
(STATE_PORT,) = set(re.findall(r"127\.0\.0\.1:(\d+)/readyz", PAGE.text))
(MODEL_PORT,) = set(re.findall(r"127\.0\.0\.1:(\d+)/v1/chat/completions", PAGE.text))


@contextmanager
def _shell(machine: Machine, port: int) -> Iterator[Shell]:
    """A shell in the checkout, on a machine with the model in its store and nothing else."""
    link_model(SMOLLM2, machine.state / "models")
    environment = machine.environment | {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "FLEET_PORT": str(port),
        # pip goes through everything but the last step: this environment stays as it is, and what
        # the package needs is here already.
        "PIP_DRY_RUN": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the other way round
    }
    with shell(environment) as opened:
        yield opened


def test_the_port_on_the_page_is_the_one_that_everybody_gets() -> None:
    label = "default/smollm2-135m"

    assert str(choose_ports("laptop", {label: None}, {}, ALL_SERVICE_PORTS)[label]) == MODEL_PORT


@pytest.mark.skipif(
    sys.platform != "darwin" and shutil.which("systemctl") is None,
    reason="`fleet-agent install` needs systemd or launchd",
)
def test_every_command_of_the_first_node_does_what_the_page_says(machine: Machine) -> None:
    said: list[tuple[str, str]] = []
    port = own_port()

    with _shell(machine, port) as opened:
        try:
            for step in PAGE.steps:
                assert isinstance(step, Line)
                line = step.text
                if f":{MODEL_PORT}/" in line:  # this machine gives others
                    line = line.replace(f":{MODEL_PORT}/", f":{_model_port(machine)}/")
                code, printed = opened.type(line.replace(f":{STATE_PORT}/", f":{port}/"))
                assert code == step.code, f"{line}\nended with {code}:\n{printed}{_log(machine)}"
                said.append((line.partition(" #")[0].strip(), printed))
        finally:
            _end_agent(machine)

    assert re.search(r"^fleet-agent \d", _answer(said, "fleet-agent --version"), re.MULTILINE)
    assert "valid: " in _answer(said, "reconcile validate")
    reply = _answer(said, "curl -s -f http://127.0.0.1:[0-9]+/v1/chat/completions")
    assert "Paris" in json.loads(reply)["choices"][0]["message"]["content"]
    assert str(machine.root / "home/fleet.git") in _answer(said, "fleet-agent install")
    assert "nothing runs here" in _answer(said, "fleet-agent status")
    assert machine.processes() == []
    printed = {shape(line) for _, text in said for line in text.splitlines()}
    assert [line for line in PAGE.shown if shape(line) not in printed] == []


def _answer(said: list[tuple[str, str]], line: str) -> str:
    """What the last line of this form printed."""
    return [printed for typed, printed in said if re.match(line, typed)][-1]


def _model_port(machine: Machine) -> int:
    instance = machine.instance("smollm2-135m")
    assert instance
    assert instance.endpoint
    return int(instance.endpoint.rpartition(":")[2])


def _end_agent(machine: Machine) -> None:
    """Whatever line failed, no agent is left that would start the model again."""
    lock = machine.state / "agent.lock"
    held = lock.read_text().strip() if lock.is_file() else ""
    if held.isdigit() and alive(int(held)):
        os.kill(int(held), signal.SIGKILL)
        wait_for(lambda: not alive(int(held)))


def _log(machine: Machine) -> str:
    log = machine.root / "home/agent.log"
    return log.read_text() if log.is_file() else ""
