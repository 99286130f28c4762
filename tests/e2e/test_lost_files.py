"""A file that a node needs is gone or damaged, while clients ask: what is declared comes back."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.server import served
from tests.support.client import asking
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.served_node import request
from tests.support.small_disk import small_disk
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
    """What an agent has written there; the lock is held, the models have a test of their own,
    and a `.tmp` is being written."""
    for file in sorted(path for path in state.rglob("*") if path.is_file()):
        held = file.name == "agent.lock" or file.suffix == ".tmp"
        if not held and not file.is_relative_to(state / "models"):
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


_BEING_WRITTEN = shutil.ignore_patterns("*.tmp")  # by a live agent, and gone a moment later


def _gone(_copy: Path, state: Path) -> None:
    shutil.rmtree(state)


def _emptied(_copy: Path, state: Path) -> None:
    for path in state.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _restored(copy: Path, state: Path) -> None:
    shutil.rmtree(state)
    copy.rename(state)


def _stop(machine: Machine, pid: int) -> None:
    """Between two fetches: in the middle of one it would keep everybody from the clone."""
    (lock,) = machine.root.glob("cache/fleet-reconciler/git/*.flock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize("harm", [_gone, _emptied, _restored])
def test_a_live_agent_writes_its_lost_state_directory_again_and_nobody_else_is_let_in(
    machine: Machine, tmp_path: Path, tiny: Path, harm: Callable[[Path, Path], None]
) -> None:
    node = {"expose": "key", "hostIP": "127.0.0.2"}
    fleet = Fleet.create(tmp_path / "git", tiny, "other", agent=node)
    fleet.push_service("idle", suspend=True)
    agent = machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("other")
    shutil.copytree(machine.state, machine.root / "copy", ignore=_BEING_WRITTEN)
    fleet.push_service("chat")
    before = machine.wait_ready("chat")
    assert machine.agent("stop", "other").code == 0
    assert before.endpoint
    key = (machine.state / "api-key").read_text()

    with asking(before.endpoint) as seen:
        _stop(machine, agent.pid)  # so that it cannot have noticed yet
        harm(machine.root / "copy", machine.state)
        refused = machine.reconcile("-C", fleet.url, "--once", "--local")
        shown = machine.agent("status")
        os.kill(agent.pid, signal.SIGCONT)
        agent.wait_said("the state directory was gone, or another was in its place")
        after = machine.wait_ready("chat")

    assert (refused.code, f"already in use by pid {agent.pid}" in refused.err) == (1, True)
    assert f"agent: running, pid {agent.pid}" in shown.err
    if harm is not _restored:
        assert (shown.code, "the state directory is gone" in shown.out) == (3, True), shown.out
    assert (after.pid, seen.failures) == (before.pid, [])
    wait_for(lambda: machine.node_state().get("node") == "here")
    wait_for(lambda: "StoppedByHand" in machine.agent("status").out, "what was restored is undone")
    now = machine.agent("status")
    assert f"agent: running, pid {agent.pid}" in now.err
    assert "Suspended" in now.out
    assert (machine.state / "api-key").read_text().strip() == key.strip()

    agent.end(signal.SIGKILL)
    successor = machine.daemon("--fleet", fleet.url, "--node", "here")
    successor.wait_said("msg=ready")
    assert machine.wait_ready("chat").pid == before.pid
    # a record that was restored, of a process that has ended, goes with the first pass
    wait_for(lambda: machine.instance("other") is None, "what was stopped by hand is gone")
    assert "service=default/other pid=" not in successor.err, "and was not started meanwhile"


def test_a_copied_state_directory_takes_over_nothing_of_the_first(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")
    assert before.endpoint
    copy = machine.root / "copy"
    shutil.copytree(machine.state, copy, ignore=_BEING_WRITTEN)

    with asking(before.endpoint) as seen:
        env = {"FLEET_STATE_DIR": str(copy)}
        planned = machine.reconcile("-C", fleet.url, "--dry-run", "--local", env=env)
        second = machine.daemon("--fleet", fleet.url, "--node", "here", env=env)
        second.wait_said("reason=PortInUse")
        stopped = machine.agent("stop", "chat", env=env)

    assert f"default/chat of the state directory {machine.state}" in second.err
    assert (planned.code, "PortInUse" in planned.out) == (3, True), planned.out
    assert stopped.code == 0, stopped.err
    assert (machine.wait_ready("chat").pid, seen.failures) == (before.pid, [])


def test_what_a_full_disk_does_not_take_is_said_wherever_the_agent_is_asked(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    with small_disk(machine.state, 8 << 20):
        machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("msg=ready")
        filler, address = machine.state / "other", machine.state / "server.json"
        url = machine.node_state() and served(machine.state)
        assert url
        assert url.url
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={filler}", "bs=4096"], capture_output=True, check=False
        )
        fleet.repo.publish({"README.md": "nothing of the fleet"})

        def held() -> str:
            return str(request(url.url, "GET", "/v1/state").json()["revision"].get("held", ""))

        wait_for(lambda: "No space left on device" in held())
        assert "cannot be written: No space left on device" in machine.agent("status").out
        said = request(url.url, "GET", "/metrics").text.splitlines()
        assert any(
            line.startswith("fleet_revision_held") and line.endswith(" 1.0") for line in said
        )
        assert request(url.url, "GET", "/readyz").status == 200
        os.kill(machine.wait_ready("chat").pid or 0, signal.SIGKILL)
        wait_for(lambda: "StateUnwritable" in request(url.url, "GET", "/readyz").text)
        assert "StateUnwritable" in machine.agent("status").out

        address.unlink()
        filler.unlink()
        wait_for(lambda: not held() and address.exists())
