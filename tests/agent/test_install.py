"""The agent as a service: the files that systemd and launchd are given."""

from __future__ import annotations

import plistlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli import main as agent_main
from agent.cli.install import carry_out
from agent.install import ServiceSpec, launchd, systemd
from reconciler.api.errors import StateError

WANTED = ServiceSpec(
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


def test_nothing_under_a_systems_unit_gains_rights_once_the_devices_are_made() -> None:
    text = systemd.unit(replace(WANTED, scope="system"), lingers=False).text

    made = text.index("ExecStartPre=-+/usr/bin/nvidia-modprobe")
    assert made < text.index("NoNewPrivileges=yes\n")
    assert not any(word in text for word in ("DevicePolicy", "PrivateDevices", "ProtectClock"))


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


_LAUNCHCTL = """#!/bin/sh
# A job that takes a moment to end, as an agent does: until then no other is taken in its place.
echo "$@" >> said
case "$1" in
bootout) echo "Boot-out failed: 36: Operation now in progress" >&2; exit 36 ;;
print) [ "$(grep -c ^print said)" -lt 3 ] || exit 113 ;;
bootstrap)
    [ "$(grep -c ^print said)" -ge 3 ] && [ "$(grep -c ^bootstrap said)" -ge 2 ] && exit 0
    echo "Bootstrap failed: 5: Input/output error" >&2; exit 5 ;;
esac
"""


def test_another_job_is_given_to_launchd_once_the_agent_before_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: `install` with another option ended with "Bootstrap failed: 5: Input/output error",
    and no agent was left."""
    program = tmp_path / "launchctl"
    program.write_text(_LAUNCHCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    unit = launchd.unit(WANTED)

    carry_out(unit.load)

    job, file = f"gui/501/{launchd.LABEL}", str(unit.file)
    assert (tmp_path / "said").read_text().splitlines() == [
        f"bootout {job}",
        *[f"print {job}"] * 3,
        *[f"bootstrap gui/501 {file}"] * 2,
    ]


def test_a_job_that_does_not_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "launchctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(StateError, match=r"launchctl print gui/501/\S+: it is still there"):
        carry_out(replace(step, tried_for_s=0.0) for step in launchd.unit(WANTED).unload)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose systemctl writes down what it is told: returns that file."""
    if sys.platform == "darwin":
        pytest.skip("a Mac has launchd: e2e/test_launchd.py; Linux shows this with systemctl")
    said = tmp_path / "said"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    said.touch()
    return said


def install(tmp_path: Path, *words: str) -> int:
    state = str(tmp_path / "state")
    fleet = ("--fleet", "https://git.lan/fleet.git", "--node", "mac")
    return agent_main(["install", *fleet, "--state-dir", state, *words])


def test_a_dry_run_prints_the_unit_and_changes_nothing(
    tmp_path: Path, manager: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = install(tmp_path, "--dry-run", "--runtime", "llama-server")

    out = capsys.readouterr().out
    assert code == 0
    assert "run --fleet https://git.lan/fleet.git --node mac --runtime llama-server" in out
    assert f"Environment=PATH={tmp_path}/bin:/usr/bin:/bin:" in out
    assert "systemctl --user restart fleet-agent.service" in out
    assert not manager.read_text()


def test_installing_twice_changes_nothing_the_second_time(tmp_path: Path, manager: Path) -> None:
    codes = [install(tmp_path), install(tmp_path)]

    assert codes == [0, 0]
    assert manager.read_text().splitlines() == [
        "--user daemon-reload",
        f"--user enable {systemd.NAME}",
        f"--user restart {systemd.NAME}",
    ]


def test_other_options_change_the_unit_and_restart_the_agent(tmp_path: Path, manager: Path) -> None:
    install(tmp_path)
    manager.write_text("")

    install(tmp_path, "--interval", "5m")

    unit = tmp_path / ".config/systemd/user" / systemd.NAME
    assert "--interval 5m" in unit.read_text()
    assert f"--user restart {systemd.NAME}" in manager.read_text()


def test_uninstalling_takes_the_unit_away(tmp_path: Path, manager: Path) -> None:
    install(tmp_path)

    code = agent_main(["uninstall", "--state-dir", str(tmp_path / "state")])

    assert code == 0
    assert not (tmp_path / ".config/systemd/user" / systemd.NAME).exists()
    assert f"--user disable --now {systemd.NAME}" in manager.read_text()


@pytest.mark.parametrize(
    ("said", "remedies"),
    [
        ("Unit is masked", ()),
        (
            "Failed to connect to bus: No medium found",
            ("`sudo fleet-agent install --system`", "enable-linger", "`fleet-agent run`"),
        ),
        (
            "Failed to connect to user scope bus via local transport: No medium found",
            ("`sudo fleet-agent install --system`", "enable-linger", "`fleet-agent run`"),
        ),
        (
            "System has not been booted with systemd as init system (PID 1). Can't operate."
            " Failed to connect to bus: Host is down",
            ("`fleet-agent run` with this machine's own service manager",),
        ),
    ],
)
def test_a_manager_that_fails_is_heard_with_what_to_do(
    tmp_path: Path,
    manager: Path,
    capsys: pytest.CaptureFixture[str],
    said: str,
    remedies: tuple[str, ...],
) -> None:
    program = tmp_path / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "{said}" >&2; exit 1\n')

    code = install(tmp_path)

    heard = capsys.readouterr().err
    assert code == 1
    assert f"systemctl --user daemon-reload: {said}" in heard
    assert [words for words in remedies if words not in heard] == []
    assert ("; " in heard) == bool(remedies)
    assert not (tmp_path / ".config/systemd/user" / systemd.NAME).exists()


def test_what_the_manager_did_not_take_is_tried_again(tmp_path: Path, manager: Path) -> None:
    program = tmp_path / "bin" / "systemctl"
    works = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    install(tmp_path)

    program.write_text(works)
    code = install(tmp_path)

    assert code == 0
    assert f"--user restart {systemd.NAME}" in manager.read_text()


def test_no_option_writes_a_line_of_its_own_into_the_unit(
    tmp_path: Path, manager: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = install(tmp_path, "--ref", "main\nExecStartPre=/bin/false")

    assert code == 64
    assert "a service's file cannot carry this" in capsys.readouterr().err


def test_what_is_not_there_is_uninstalled_without_a_fuss(
    tmp_path: Path, manager: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = agent_main(["uninstall", "--state-dir", str(tmp_path / "state")])

    assert code == 0
    assert "is not there, nothing to remove" in capsys.readouterr().err
