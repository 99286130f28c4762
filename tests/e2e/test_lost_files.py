"""A file that a node needs is gone or damaged, while clients ask: what is declared comes back."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@dataclass
class Here:
    """An agent, and the process of its service."""

    machine: Machine
    fleet: Fleet
    agent: Running
    pid: int

    def kill_engine(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not alive(self.pid))

    def start_agent(self) -> None:
        self.agent = self.machine.daemon("--fleet", self.fleet.url, "--node", "here")


def _engine_dies(here: Here) -> None:
    here.kill_engine()


def _machine_boots_again(here: Here) -> None:
    here.agent.end(signal.SIGKILL)
    here.kill_engine()
    here.start_agent()


def _person_restarts(here: Here) -> None:
    done = here.machine.agent("restart", "chat", "--timeout", "60s")
    assert (done.code, "ready at http://" in done.err) == (0, True), done.err


def _person_restarts_without_an_agent(here: Here) -> None:
    here.agent.end()
    done = here.machine.agent("restart", "chat", "--timeout", "60s")
    assert (done.code, "not restarted yet" in done.err) == (3, True), done.err
    here.start_agent()


def _removed(models: Path) -> None:
    shutil.rmtree(models / "sha256")


def _cut(models: Path) -> None:
    (file,) = models.glob("sha256/*/*.gguf")
    file.chmod(0o600)
    file.replace(kept := file.with_suffix(".kept"))  # what runs has it mapped
    file.write_bytes(kept.read_bytes()[:1000])


@pytest.mark.parametrize("harm", [_removed, _cut])
@pytest.mark.parametrize(
    "then",
    [
        _engine_dies,
        _machine_boots_again,
        _person_restarts,
        _person_restarts_without_an_agent,
    ],
)
def test_a_model_file_that_is_lost_comes_again_however_that_is_noticed(
    machine: Machine,
    fleet: Fleet,
    harm: Callable[[Path], None],
    then: Callable[[Here], None],
) -> None:
    fleet.push_service("chat", rollout={"drainTimeout": "1s"})
    agent = machine.daemon("--fleet", fleet.url, "--node", "here", "--interval", "1h")
    before = machine.wait_ready("chat")
    assert before.pid

    harm(machine.state / "models")
    then(Here(machine, fleet, agent, before.pid))

    machine.wait_ready("chat", not_pid=before.pid)
    assert machine.reconcile("-C", fleet.url, "--dry-run", "--local").code == 0
    assert not (machine.state / "desired" / "restarts.json").exists()
