"""A program that a test starts by a fork is what it would be as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import forked

pytestmark = pytest.mark.e2e  # importing everything takes a second

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
PROGRAMS = Path(sys.executable).parent


def _both(
    program: str, *words: str, cwd: Path, env: Mapping[str, str]
) -> list[subprocess.CompletedProcess[str]]:
    argv = [str(PROGRAMS / program), *words]
    process = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, cwd=cwd
    )
    return [process, forked.run(argv, env=env, cwd=cwd, timeout_s=60)]


@pytest.mark.parametrize(
    ("program", "words", "code"),
    [
        ("reconcile", ("--version",), 0),
        ("reconcile", ("plans",), 64),
        ("reconcile", ("validate", "-C", str(EXAMPLE)), 0),
        ("reconcile", ("validate", "-C", "."), 1),  # the working directory is no fleet
        ("fleet-agent", ("status",), 0),  # asks by environment: HOME
        ("fleet-agent", ("stop", "chat"), 0),
    ],
)
def test_it_says_and_ends_as_a_process_does(
    tmp_path: Path, program: str, words: tuple[str, ...], code: int
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FLEET_OFFLINE": "1"}

    process, fork = _both(program, *words, cwd=tmp_path, env=env)

    assert (fork.returncode, fork.stdout, fork.stderr) == (
        process.returncode,
        process.stdout,
        process.stderr,
    )
    assert fork.returncode == code


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    argv = [str(PROGRAMS / "reconcile"), "validate", "-C", str(EXAMPLE)]

    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(argv, env=env, cwd=tmp_path, timeout_s=0)

    assert forked.run(argv, env=env, cwd=tmp_path, timeout_s=60).returncode == 0


def test_one_that_stays_is_seen_and_signalled(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("run", "--fleet", str(EXAMPLE), "--node", "laptop", "--port", "0")
    with out.open("wb") as file:
        process = forked.start(
            [str(PROGRAMS / "fleet-agent"), *words],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FLEET_OFFLINE": "1"},
            cwd=tmp_path,
            out=file,
            err=file,
        )
    assert process.poll() is None

    process.kill()

    assert process.wait(60) == process.poll() == -signal.SIGKILL
    process.terminate()  # nobody any more


def test_what_python_reads_at_its_start_needs_a_process() -> None:
    assert forked.can_run([str(PROGRAMS / "reconcile")], ("FLEET_OFFLINE",))
    assert not forked.can_run([str(PROGRAMS / "reconcile")], ("PYTHONWARNINGS",))
    assert not forked.can_run(["/bin/sh", str(PROGRAMS / "reconcile")])
