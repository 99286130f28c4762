"""docs/first-node.md, typed as it stands: every command block, in order, by somebody new."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.engines import free_port
from tests.support.gemma import link_gemma
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parent.parent.parent
PAGE = (REPOSITORY / "docs/first-node.md").read_text()
PROGRAMS = Path(sys.executable).parent
FENCED = re.findall(r"^```([a-z]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = [text for language, text in FENCED if language == "sh"]
SHOWN = [line for language, text in FENCED if not language for line in text.splitlines() if line]
(STATE_PORT,) = set(re.findall(r"127\.0\.0\.1:(\d+)/readyz", PAGE))
(MODEL_PORT,) = set(re.findall(r"127\.0\.0\.1:(\d+)/v1/completions", PAGE))
_NO_DIGITS = str.maketrans(dict.fromkeys("0123456789"))
LINE_DEADLINE_S = 180.0  # `until ...` waits for a real model
_END = "--- exit"


@dataclass(frozen=True, slots=True)
class Shell:
    """One bash from the first block to the last: folders and background jobs stay."""

    process: subprocess.Popen[str]

    def type(self, line: str) -> tuple[int, str]:
        """Its exit code, and what it printed to both streams."""
        assert self.process.stdin
        assert self.process.stdout
        deadline = threading.Timer(LINE_DEADLINE_S, self.process.kill)
        deadline.start()
        try:
            self.process.stdin.write(f'{{ {line}\n}} </dev/null\necho "\n{_END} $?"\n')
            self.process.stdin.flush()
            printed: list[str] = []
            for text in self.process.stdout:
                if text.startswith(_END):
                    return int(text.split()[-1]), "".join(printed)
                printed.append(text)
        finally:
            deadline.cancel()
        raise AssertionError(f"{line!r} did not end in {LINE_DEADLINE_S:.0f} s: {printed}")


@contextmanager
def _shell(machine: Machine, port: int) -> Iterator[Shell]:
    """A shell in the checkout, on a machine with the model in its store and nothing else."""
    link_gemma(machine.state / "models")
    environment = machine.environment | {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "FLEET_PORT": str(port),
        # pip goes through everything but the last step: this environment stays as it is, and what
        # the package needs is here already.
        "PIP_DRY_RUN": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the other way round
    }
    process = subprocess.Popen(
        ["bash", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    try:
        shell = Shell(process)
        shell.type("set -m")  # jobs, as in a shell that somebody types into
        yield shell
    finally:
        process.kill()
        process.communicate()


def _lines() -> Iterator[tuple[str, int]]:
    """What is typed, and the exit code that the page states for it."""
    for block in BLOCKS:
        for line in block.splitlines():
            stated = re.search(r"# exit (\d+)", line)
            yield line, int(stated[1]) if stated else 0


@pytest.mark.skipif(
    sys.platform != "darwin" and shutil.which("systemctl") is None,
    reason="`fleet-agent install` needs systemd or launchd",
)
def test_every_command_of_the_first_node_does_what_the_page_says(machine: Machine) -> None:
    said: list[tuple[str, str]] = []
    port = free_port()

    with _shell(machine, port) as shell:
        try:
            for line, stated in _lines():
                if f":{MODEL_PORT}/" in line:  # another program may have the usual one
                    line = line.replace(f":{MODEL_PORT}/", f":{_model_port(machine)}/")
                code, printed = shell.type(line.replace(f":{STATE_PORT}/", f":{port}/"))
                assert code == stated, f"{line}\nended with {code}:\n{printed}{_log(machine)}"
                said.append((line.partition(" #")[0].strip(), printed))
        finally:
            _end_agent(machine)

    assert re.search(r"^fleet-agent \d", _answer(said, "fleet-agent --version"), re.MULTILINE)
    assert "valid: " in _answer(said, "reconcile validate")
    reply = _answer(said, "curl -s -f http://127.0.0.1:[0-9]+/v1/completions")
    assert "Paris" in json.loads(reply)["choices"][0]["text"]
    assert str(machine.root / "home/fleet.git") in _answer(said, "fleet-agent install")
    assert "nothing runs here" in _answer(said, "fleet-agent status")
    assert machine.processes() == []
    printed = {_shape(line) for _, text in said for line in text.splitlines()}
    assert [line for line in SHOWN if _shape(line) not in printed] == []


def _answer(said: list[tuple[str, str]], line: str) -> str:
    """What the last line of this form printed."""
    return [printed for typed, printed in said if re.match(line, typed)][-1]


def _shape(line: str) -> str:
    """A line without what differs from one machine and one commit to the next."""
    line = re.sub(r", others [0-9.]+ [KMG]?i?B", "", line)
    line = re.sub(r"\b[0-9a-f]{7}\b", "COMMIT", line)
    return " ".join(re.sub(r"[0-9.]+ [KMG]iB", "SIZE", line).translate(_NO_DIGITS).split())


def _model_port(machine: Machine) -> int:
    instance = machine.instance("gemma-270m")
    assert instance
    assert instance.endpoint
    return int(instance.endpoint.rpartition(":")[2])


def _end_agent(machine: Machine) -> None:
    """Whatever line failed, no agent is left that would start the model again."""
    lock = machine.state / "agent.lock"
    held = lock.read_text().strip() if lock.is_file() else ""
    if held.isdigit() and any(str(process.pid) == held for process in machine.processes()):
        os.kill(int(held), signal.SIGKILL)
        wait_for(lambda: all(str(process.pid) != held for process in machine.processes()))


def _log(machine: Machine) -> str:
    log = machine.root / "home/agent.log"
    return log.read_text() if log.is_file() else ""
