"""A file that a node needs is gone or damaged, while clients ask: what is declared comes back."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.client import asking
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


# Each harm to one file, given what it holds and what it held before the last change.
HARMS: dict[str, Callable[[bytes, bytes | None], bytes | None]] = {
    "removed": lambda _now, _before: None,
    "cut": lambda now, _before: now[: len(now) // 2],
    "noise": lambda now, _before: bytes(range(256)) * 40 if len(now) % 2 else b"\xff",
    "much of it": lambda _now, _before: b"[" * 10_000_000,
    "of last week": lambda _now, before: before,
}


def _files(state: Path) -> Iterator[Path]:
    """What an agent has written there; the lock is held, and the models have a test of their
    own."""
    for file in sorted(path for path in state.rglob("*") if path.is_file()):
        if file.name != "agent.lock" and not file.is_relative_to(state / "models"):
            yield file


def _put(file: Path, data: bytes | None) -> None:
    """In its place, whole: who has the old one open keeps it."""
    file.unlink()
    if data is not None:
        file.write_bytes(data)


@pytest.mark.parametrize("harm", HARMS)
def test_whatever_happens_to_one_file_of_the_state_directory_no_request_is_lost(
    machine: Machine, fleet: Fleet, harm: str
) -> None:
    words = ("--fleet", fleet.url, "--node", "here")
    fleet.push_service("chat")
    fleet.push_service("idle", suspend=True)
    agent = machine.daemon(*words)
    first = machine.wait_ready("chat")
    before = {file: file.read_bytes() for file in _files(machine.state)}
    fleet.push_service("chat", contextSize=1024)
    now = machine.wait_ready("chat", not_pid=first.pid)
    assert now.endpoint
    agent.wait_said("msg=plan")
    agent.end(signal.SIGKILL)

    with asking(now.endpoint) as seen:
        for file in tuple(_files(machine.state)):
            if file.exists():
                _put(file, HARMS[harm](file.read_bytes(), before.get(file)))
            agent = machine.daemon(*words)
            agent.wait_said("msg=ready")
            again = machine.wait_instance("chat", lambda i: i.ready)
            assert (again.pid, again.inputs_digest) == (now.pid, now.inputs_digest), file
            agent.end(signal.SIGKILL)

    assert seen.failures == []
    assert seen.answers > 0
    assert machine.reconcile("-C", fleet.url, "--dry-run", "--local").code == 0


def test_a_lost_state_directory_ends_in_adoption(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    words = ("--fleet", fleet.url, "--node", "here")
    agent = machine.daemon(*words)
    before = machine.wait_ready("chat")
    assert before.endpoint
    agent.end(signal.SIGKILL)

    with asking(before.endpoint) as seen:
        shutil.rmtree(machine.state)
        machine.daemon(*words).wait_said("msg=ready")
        after = machine.wait_ready("chat")

    assert (after.pid, seen.failures) == (before.pid, [])
