"""Commands that need not import anything are as those that are started afresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import warm
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

_PROGRAMS = Path(sys.executable).parent


@pytest.mark.parametrize(
    "words",
    [
        ("reconcile", "--help"),
        ("reconcile", "no-such-command"),
        ("reconcile", "validate", "-C", "nowhere"),
        ("fleet-agent", "status"),
    ],
    ids=" ".join,
)
def test_a_command_says_and_returns_what_a_fresh_one_does(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    argv = [str(_PROGRAMS / words[0]), *words[1:]]
    env = Machine(tmp_path).environment

    fresh = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
    forked = warm.run(argv, env, tmp_path, 60.0)

    assert (forked.returncode, forked.stdout, forked.stderr) == (
        fresh.returncode,
        fresh.stdout,
        fresh.stderr,
    )


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    for_ever = ("fleet-agent", "run", "--fleet", "http://127.0.0.1:1/none.git", "--node", "here")
    argv = [str(_PROGRAMS / for_ever[0]), *for_ever[1:]]
    env = Machine(tmp_path).environment | {"FLEET_PORT": "0"}

    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(argv, env, tmp_path, 0.5)

    def still_runs() -> bool:
        folders = [process.info["cwd"] for process in psutil.process_iter(["cwd"])]
        return str(tmp_path) in folders

    wait_for(lambda: not still_runs(), "it is gone")


def test_what_is_read_at_a_start_is_read_at_a_start(tmp_path: Path) -> None:
    argv = [str(_PROGRAMS / "reconcile"), "--version"]
    env = Machine(tmp_path).environment | {"PYTHONVERBOSE": "1"}

    assert "import" in warm.run(argv, env, tmp_path, 60.0).stderr
