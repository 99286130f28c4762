"""What runs differs from what is declared, or from what would be started now: who does what."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.node.drift import differences
from agent.process.health import ask
from agent.process.ports import can_bind
from agent.process.records import Records
from agent.state.directory import StateDir
from tests.support import servers
from tests.support.fleets import document
from tests.support.llama_server import llama_server
from tests.support.owner import get
from tests.support.pids import alive
from tests.support.platforms import sees_upgrades
from tests.support.ports import own_port
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A llama-server of this machine's own, that a test may replace. Its libraries lie beside it,
    or in a folder `lib` beside its own."""
    program = llama_server().resolve()
    folder = tmp_path / "engine/bin"
    folder.mkdir(parents=True)
    for file in (program, *program.parent.glob("lib*")):
        shutil.copy2(file, folder, follow_symlinks=False)
    (tmp_path / "engine/lib").symlink_to(program.parent.parent / "lib")
    return folder / program.name


def upgrade(engine: Path) -> None:
    """As package managers do: another file, renamed over the one that runs."""
    new = engine.with_name("new")
    shutil.copy2(engine, new)
    os.utime(new, (1, 1))
    new.rename(engine)


def follow(machine: Machine, fleet: Fleet, *words: str) -> Running:
    often = ("--drift-interval", "500ms")
    return machine.daemon("--fleet", fleet.url, "--node", "here", *often, *words)


def settle(machine: Machine, fleet: Fleet) -> None:
    """Until a pass has begun after everything was ready: one that still starts a process renders it
    anew, with the engine that is there by then."""
    head = fleet.repo.publish({"README.md": "Nothing that runs.\n"}, "Say nothing")
    wait_for(lambda: machine.node_state()["revision"].get("applied") == head, "a later pass")


def drift_of(machine: Machine, name: str) -> list[dict[str, Any]]:
    """What its agent says of a service's drift, in NodeState."""
    instances = machine.node_state().get("instances", [])
    return [d for i in instances if i["name"] == f"default/{name}" for d in i.get("drift", [])]


@sees_upgrades
def test_a_replaced_engine_is_deferred_with_since_when_until_a_restart_by_hand(
    machine: Machine, fleet: Fleet, engine: Path
) -> None:
    fleet.push_service("chat", contextSize=1024)
    words = ("--llama-server", str(engine))
    follow(machine, fleet, *words)
    before = machine.wait_ready("chat")
    settle(machine, fleet)

    upgrade(engine)
    wait_for(lambda: bool(drift_of(machine, "chat")), "the drift in NodeState")

    (drift,) = drift_of(machine, "chat")
    assert (drift["kind"], drift["message"]) == (
        "deferred",
        f"{engine} was replaced since (an upgrade)",
    )
    plan = machine.reconcile("-C", fleet.url, "--dry-run", "--local", *words)
    assert plan.code == 0, plan.out
    assert "= " in plan.out
    assert "was replaced since" in plan.out
    assert "first seen" in plan.out
    status = machine.agent("status")
    assert status.code == 0
    assert "= deferred: " in status.out
    assert machine.wait_ready("chat").pid == before.pid

    # Since when does not begin again with another life of the agent.
    machine.running()[0].end()
    follow(machine, fleet, *words)
    wait_for(lambda: bool(drift_of(machine, "chat")), "the drift again")
    assert drift_of(machine, "chat")[0]["since"] == drift["since"]

    assert machine.agent("restart", "chat").code == 0
    machine.wait_ready("chat", not_pid=before.pid)
    wait_for(lambda: not drift_of(machine, "chat"), "no drift")
    plan = machine.reconcile("-C", fleet.url, "--dry-run", "--local", *words)
    assert "= " not in plan.out


@sees_upgrades
def test_on_upgrade_restart_applies_it_at_once(
    machine: Machine, fleet: Fleet, engine: Path
) -> None:
    fleet.push_service("chat", rollout={"onUpgrade": "restart"})
    fleet.push_service("other")
    follow(machine, fleet, "--llama-server", str(engine))
    chat, other = machine.wait_ready("chat"), machine.wait_ready("other")
    settle(machine, fleet)

    upgrade(engine)

    machine.wait_ready("chat", not_pid=chat.pid)
    assert machine.wait_ready("other").pid == other.pid


@pytest.fixture
def stranger() -> Iterator[tuple[int, int]]:
    """A program of somebody else, and the port that it has."""
    port = own_port()
    with subprocess.Popen(servers.argv(port)) as child:
        wait_for(lambda: not can_bind("127.0.0.1", port))
        yield child.pid, port
        assert child.poll() is None, "somebody ended it"
        child.kill()


def test_a_foreign_process_on_the_port_is_named_everywhere_and_never_ended(
    machine: Machine, fleet: Fleet, stranger: tuple[int, int]
) -> None:
    pid, port = stranger
    fleet.push_service("chat", endpoint={"port": port})
    follow(machine, fleet)

    wait_for(lambda: bool(machine.node_state().get("blocked")), "what is blocked, in NodeState")

    (blocked,) = machine.node_state()["blocked"]
    assert blocked["reason"] == "PortInUse"
    named = f"pid {pid}"
    assert named in blocked["message"]
    plan = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
    status = machine.agent("status")
    assert named in plan.out
    assert named in status.out
    assert status.code == 3
    assert alive(pid)


def test_a_killed_process_is_started_again(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    fleet.push_service("other")
    follow(machine, fleet)
    chat, other = machine.wait_ready("chat"), machine.wait_ready("other")
    assert chat.pid

    os.kill(chat.pid, signal.SIGKILL)

    after = machine.wait_ready("chat", not_pid=chat.pid)
    assert after.port == chat.port
    assert machine.wait_ready("other").pid == other.pid


def test_a_context_beyond_what_the_model_was_trained_for_is_a_warning_and_no_drift(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=16384)  # the model has 8192
    words = ("--llama-server", str(llama_server()))
    follow(machine, fleet, *words)
    running = machine.wait_ready("chat")
    (record,) = Records(StateDir(machine.state)).read_all()
    assert running.pid is not None

    found = differences(record.launch, running.pid, ask)
    plan = machine.reconcile("-C", fleet.url, "--dry-run", "--local", *words)

    assert get(record.launch.port, "/props")["default_generation_settings"]["n_ctx"] == 8192
    assert found == ()
    assert plan.code == 0, plan.out
    assert "! " not in plan.out
    assert "16384 tokens, and tiny was trained with 8192: no more than 8192 are" in plan.err


@pytest.fixture
def rewriting(tmp_path: Path) -> Path:
    """A wrapper that starts llama.cpp with a word that nobody asked for."""
    program = tmp_path / "wrapped" / "llama-server"
    program.parent.mkdir()
    inner = f'exec "{sys.executable}" -P -m agent.embedded "$@"'
    program.write_text(f'#!/bin/sh\nset -- "$@" --threads 1\n{inner}\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("policy", "restarts"), [("report", False), ("enforce", True)])
def test_another_command_line_is_mended_once_or_only_shown(
    machine: Machine, fleet: Fleet, rewriting: Path, policy: str, restarts: bool
) -> None:
    fleet.repo.publish({"fleet.yaml": document("Fleet", "fleet", {"drift": policy})})
    fleet.push_service("chat")
    agent = follow(machine, fleet, "--llama-server", str(rewriting))
    before = machine.wait_ready("chat")  # enforced, it may be the second process already

    wait_for(lambda: bool(drift_of(machine, "chat")), "the drift in NodeState")

    if restarts:
        wait_for(
            lambda: "a restart did not change that" in str(drift_of(machine, "chat")),
            "that it is shown only",
        )
        agent.wait_said("msg=applied action=drift service=default/chat message=starts")
        agent.wait_said("msg=ready service=default/chat", count=2)
        assert agent.err.count("msg=ready service=default/chat") == 2  # mended once
    else:
        plan = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
        assert plan.code == 2, plan.out  # a person is to look
        assert "its command line" in plan.out
        assert "memory" not in plan.out
        assert machine.wait_ready("chat").pid == before.pid
