"""The agent as a job of launchd: installed, looked at, changed under its model, and taken away."""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.install.launchd import LABEL
from tests.support.client import complete
from tests.support.pids import alive
from tests.support.reconciler import Finished, Fleet, Machine
from tests.support.wait import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        sys.platform != "darwin",
        reason="only a Mac has launchd; test_install.py shows the same with systemctl",
    ),
]


@dataclass(frozen=True, slots=True)
class Managed:
    """A Mac with launchd, and a fleet to follow. Its home is a folder of the test's."""

    machine: Machine
    fleet: Fleet

    @property
    def file(self) -> Path:
        return self.machine.root / f"home/Library/LaunchAgents/{LABEL}.plist"

    @property
    def log(self) -> Path:
        return self.machine.state / "agent.log"

    def install(self, *words: str) -> Finished:
        variables = self.machine.environment  # launchd passes on none of them
        stated = {
            "--state-dir": str(self.machine.state),
            "--service-ports": variables["FLEET_SERVICE_PORTS"],
            "--interval": variables["FLEET_POLL_INTERVAL"],
            "--port": "0",
        }
        done = self.machine.agent(
            *("install", "--fleet", self.fleet.url, "--node", "here"),
            *(word for pair in stated.items() for word in pair),
            *words,
        )
        assert done.code == 0, done.err + self.said()
        return done

    def uninstall(self, *words: str) -> Finished:
        done = self.machine.agent("uninstall", *words)
        assert done.code == 0, done.err + self.said()
        return done

    def said(self) -> str:
        return self.log.read_text() if self.log.is_file() else ""


def job() -> str:
    """What launchd says of it; empty where it knows none."""
    done = subprocess.run(
        ("launchctl", "print", f"gui/{os.getuid()}/{LABEL}"), capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else ""


def agent_pid() -> int | None:
    found = re.search(r"^\s*pid = (\d+)$", job(), re.MULTILINE)
    return int(found[1]) if found else None


@pytest.fixture
def managed(machine: Machine, fleet: Fleet) -> Iterator[Managed]:
    if job():
        pytest.skip(f"an agent is installed on this Mac: {LABEL} is not the test's")
    fleet.push_service("chat")
    yield Managed(machine, fleet)
    subprocess.run(
        ("launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}"), capture_output=True, check=False
    )
    wait_for(lambda: not job(), "no job is left")


def test_the_job_is_a_property_list_that_apple_takes(managed: Managed) -> None:
    shown = managed.machine.agent(
        "install", "--fleet", managed.fleet.url, "--node", "here", "--dry-run"
    )
    assert shown.code == 0, shown.err
    text = shown.out[shown.out.index("<?xml") : shown.out.index("</plist>") + len("</plist>\n")]
    file = managed.machine.root / "job.plist"
    file.write_text(text)

    done = subprocess.run(("plutil", "-lint", file), capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert plistlib.loads(text.encode())["Label"] == LABEL


def test_launchd_runs_the_agent_and_models_outlive_it(managed: Managed) -> None:
    installed = managed.install()
    assert "the agent runs; models start when" in installed.err
    chat = managed.machine.wait_ready("chat")
    assert chat.endpoint
    assert complete(chat.endpoint)
    status = managed.machine.agent("status")
    assert status.code == 0, status.out
    assert "default/chat  Ready" in re.sub(" +", "  ", status.out)

    # Typed again it changes nothing; with another option the agent is another, and no model.
    first = agent_pid()
    assert first
    assert "is current" in managed.install().err
    assert agent_pid() == first
    managed.install("--log-level", "debug")
    wait_for(lambda: agent_pid() not in (None, first), "another agent")
    assert managed.machine.wait_ready("chat").pid == chat.pid

    # launchd starts it again, whatever ended it.
    second = agent_pid()
    assert second
    os.kill(second, 9)
    wait_for(lambda: agent_pid() not in (None, second), "the agent again")
    assert managed.machine.wait_ready("chat").pid == chat.pid

    assert managed.machine.agent("stop", "chat").code == 0
    managed.machine.wait_gone("chat", chat.pid)
    assert managed.machine.agent("restart", "chat").code == 0
    again = managed.machine.wait_ready("chat")

    last = agent_pid()
    removed = managed.uninstall()
    assert "default/chat: stopped" in removed.err
    assert job() == ""
    assert not managed.file.exists()
    assert not alive(last or 0)
    assert again.pid
    assert not alive(again.pid)


def test_uninstalled_with_keep_running_models_go_on(managed: Managed) -> None:
    managed.install()
    chat = managed.machine.wait_ready("chat")

    managed.uninstall("--keep-running")

    assert job() == ""
    assert chat.pid
    assert alive(chat.pid)
    assert chat.endpoint
    assert complete(chat.endpoint)
