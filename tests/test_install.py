"""The agent as a service: the files that systemd and launchd are given."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.install import Wanted, launchd, systemd

WANTED = Wanted(
    scope="user",
    argv=(sys.executable, "run", "--fleet", "https://git.lan/a b/100%.git", "--node", "mac"),
    user="ada",
    uid=501,
    home=Path("/home/ada"),
    path="/opt/homebrew/bin:/usr/bin",
    log=Path("/home/ada/.local/state/fleet-reconciler/agent.log"),
)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
@pytest.mark.parametrize("scope", ["user", "system"])
def test_systemd_finds_nothing_to_complain_of(tmp_path: Path, scope: str) -> None:
    wanted = replace(WANTED, scope=scope, user="root")
    file = tmp_path / systemd.NAME
    file.write_text(systemd.unit(wanted, lingers=False).text)

    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_stopped_unit_leaves_the_models_running_and_nothing_limits_them() -> None:
    text = systemd.unit(WANTED, lingers=False).text

    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert (settings["KillMode"], settings["OOMPolicy"], settings["Restart"]) == (
        "process",
        "continue",
        "always",
    )
    assert not {"MemoryMax", "PrivateTmp", "User"} & settings.keys()


def test_a_unit_file_carries_every_word_as_it_is() -> None:
    text = systemd.unit(WANTED, lingers=False).text

    start = next(line for line in text.splitlines() if line.startswith("ExecStart="))

    assert start.endswith(' run --fleet "https://git.lan/a b/100%%.git" --node mac')


@pytest.mark.parametrize(
    ("scope", "lingers", "expected"),
    [
        ("user", False, "when ada logs in; to have them start at boot: loginctl enable-linger ada"),
        ("user", True, "when the machine boots"),
        ("system", False, "when the machine boots"),
    ],
)
def test_it_says_when_models_start(scope: str, lingers: bool, expected: str) -> None:
    unit = systemd.unit(replace(WANTED, scope=scope), lingers=lingers)

    assert unit.starts == f"models start {expected}"


def test_the_machines_own_unit_runs_as_the_user() -> None:
    unit = systemd.unit(replace(WANTED, scope="system"), lingers=False)

    assert unit.file == Path("/etc/systemd/system/fleet-agent.service")
    assert "\nUser=ada\n" in unit.text
    assert "\nWantedBy=multi-user.target\n" in unit.text


def test_launchd_leaves_the_models_running_and_starts_the_agent_again() -> None:
    unit = launchd.unit(WANTED)

    job = plistlib.loads(unit.text.encode())
    assert unit.file == Path("/home/ada/Library/LaunchAgents/dev.llmkube.fleet-agent.plist")
    assert (job["AbandonProcessGroup"], job["KeepAlive"], job["RunAtLoad"]) == (True, True, True)
    assert job["ProgramArguments"] == list(WANTED.argv)
    assert job["EnvironmentVariables"] == {"PATH": "/opt/homebrew/bin:/usr/bin"}


def test_the_machines_own_job_runs_as_the_user_at_boot() -> None:
    unit = launchd.unit(replace(WANTED, scope="system"))

    assert unit.file == Path("/Library/LaunchDaemons/dev.llmkube.fleet-agent.plist")
    assert plistlib.loads(unit.text.encode())["UserName"] == "ada"
    assert unit.starts == "models start when the machine boots"
