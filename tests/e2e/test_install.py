"""The agent as a service of the machine: installed, upgraded and taken away under its models."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.pids import alive
from tests.support.reconciler import Finished, Fleet, Machine
from tests.support.systemctl import end_service, install_manager, main_pid
from tests.support.wait import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has launchd and no systemctl"),
]


@dataclass(frozen=True, slots=True)
class Managed:
    """A machine with a service manager, and a fleet to follow."""

    machine: Machine
    fleet: Fleet
    manager: Path

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": f"{self.manager}{os.pathsep}{os.environ['PATH']}", "FLEET_PORT": "0"}

    def install(self, *words: str) -> Finished:
        done = self.machine.agent(
            "install", "--fleet", self.fleet.url, "--node", "here", *words, env=self.variables
        )
        assert done.code == 0, done.err
        return done

    def uninstall(self, *words: str) -> Finished:
        done = self.machine.agent("uninstall", *words, env=self.variables)
        assert done.code == 0, done.err
        return done

    @property
    def journal(self) -> str:
        return (self.manager / "journal").read_text()

    def wait_said(self, text: str) -> None:
        """Wait for a line of the last agent. The one before it may end without its line: what it
        serves is ready some milliseconds before it is in the journal."""
        wait_for(lambda: text in self.journal.rpartition("fleet-agent begins")[2], text)


@pytest.fixture
def managed(machine: Machine, fleet: Fleet, tmp_path: Path) -> Iterator[Managed]:
    manager = install_manager(tmp_path / "manager")
    fleet.push_service("chat")
    yield Managed(machine, fleet, manager)
    end_service(manager)


def test_installed_models_come_up_and_uninstall_drains_and_stops_them(managed: Managed) -> None:
    installed = managed.install()

    chat = managed.machine.wait_ready("chat")
    assert "the agent runs; models start when" in installed.err
    assert chat.endpoint
    assert complete(chat.endpoint)

    agent = main_pid(managed.manager)
    removed = managed.uninstall()

    assert "default/chat: stopping" in removed.err
    assert "default/chat: stopped" in removed.err
    assert managed.machine.processes() == []
    assert agent
    assert not alive(agent)
    assert not any((managed.machine.root / "home/.config").rglob("fleet-agent.service"))

    # Nothing keeps them stopped: it was the service that went, nobody's wish about a model.
    managed.install()
    managed.machine.wait_ready("chat")


def test_uninstalled_with_keep_running_models_go_on_and_the_next_agent_adopts_them(
    managed: Managed,
) -> None:
    managed.install()
    before = managed.machine.wait_ready("chat")

    managed.uninstall("--keep-running")

    assert main_pid(managed.manager) is None
    assert before.endpoint
    assert complete(before.endpoint)

    managed.install()
    managed.wait_said("msg=ready")
    assert managed.machine.wait_ready("chat").pid == before.pid


def test_another_option_restarts_the_agent_and_no_model(managed: Managed) -> None:
    managed.install()
    before = managed.machine.wait_ready("chat")
    agent = main_pid(managed.manager)

    same = managed.install()
    assert "is current" in same.err
    assert main_pid(managed.manager) == agent
    managed.install("--log-level", "debug", "--memory-fraction", "0.5")

    managed.wait_said("memory_fraction=0.5")
    managed.wait_said("msg=ready")
    assert main_pid(managed.manager) != agent
    assert managed.machine.wait_ready("chat").pid == before.pid
    managed.fleet.push_service("more")  # and it follows as before
    managed.machine.wait_ready("more")


@pytest.fixture
def sudo(managed: Managed) -> dict[str, str]:
    """The variables of somebody else who typed sudo, and said nothing of a state directory."""
    user = next(u for u in pwd.getpwall() if u.pw_uid not in (0, os.getuid()))
    return managed.variables | {"SUDO_USER": user.pw_name, "FLEET_STATE_DIR": ""}


def test_under_sudo_the_machines_own_service_is_that_of_the_user_who_typed_it(
    managed: Managed, sudo: dict[str, str]
) -> None:
    shown = managed.machine.agent(
        "install", "--system", "--dry-run", "--fleet", managed.fleet.url, env=sudo
    )

    assert shown.code == 0, shown.err
    assert f"\nUser={sudo['SUDO_USER']}\n" in shown.out
    # What it keeps is in the home that systemd gives that user, nowhere in that of who runs this.
    (start,) = [line for line in shown.out.splitlines() if line.startswith("ExecStart=")]
    assert "--state-dir" not in start
    assert managed.machine.environment["HOME"] not in start
    assert not (managed.manager / "said").exists()


def test_a_user_of_sudo_that_is_not_there_is_said(managed: Managed, sudo: dict[str, str]) -> None:
    shown = managed.machine.agent(
        *("install", "--system", "--dry-run", "--fleet", managed.fleet.url),
        env=sudo | {"SUDO_USER": "no-such-user"},
    )

    assert shown.code == 64
    assert "no-such-user" in shown.err
