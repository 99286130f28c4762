"""What `make` says to a machine that lacks something, and what it does not do twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
TRUE = shutil.which("true") or "/usr/bin/true"  # /bin has none on a Mac


def test_no_python_at_all_is_said_with_how_to_get_one(tmp_path: Path) -> None:
    run = _make(f"VENV={tmp_path}/venv", "PYTHON=", "demo")

    assert run.returncode != 0
    assert "Python 3.11 or newer is needed, and none is on PATH" in run.stderr
    assert "make PYTHON=/path/to/python" in run.stderr


def test_an_old_python_is_named_with_its_version(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit\nexit 1\n')
    old.chmod(0o755)

    run = _make(f"VENV={tmp_path}/venv", f"PYTHON={old}", "demo")

    assert run.returncode != 0
    assert f"{old} is Python 3.9.2; Python 3.11 or newer is needed" in run.stderr


def test_the_first_python_that_works_and_is_new_enough_is_taken(tmp_path: Path) -> None:
    stub = tmp_path / "python3"  # a name on PATH that only says how to install Python
    stub.write_text("#!/bin/sh\nexit 127\n")
    stub.chmod(0o755)
    (tmp_path / "python3.13").symlink_to(sys.executable)

    run = _make(
        "-n", f"VENV={tmp_path}/venv", "demo", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    )

    assert run.returncode == 0, run.stderr
    assert "python3.13 -m venv" in run.stdout


def test_a_second_demo_installs_nothing(tmp_path: Path) -> None:
    for stamp in (".created", ".demo"):
        (tmp_path / stamp).touch()

    run = _make("-n", f"VENV={tmp_path}", "demo")

    assert run.returncode == 0
    assert run.stdout.split() == [f"{tmp_path}/bin/reconcile", "demo"]


def test_what_the_tests_need_is_said_all_at_once(tmp_path: Path) -> None:
    run = _preflight(tmp_path)

    assert run.returncode == 1
    assert all(
        tool in run.stderr for tool in ("git:", "go:", "c++:", "make:", "apt-get:", "apt install")
    )


def test_who_has_an_engine_needs_no_compiler(tmp_path: Path) -> None:
    for name in ("git", "go", "apt-get"):
        program = tmp_path / name
        program.write_text("#!/bin/sh")
        program.chmod(0o755)

    run = _preflight(tmp_path, LLAMA_SERVER=sys.executable)

    assert run.returncode == 0, run.stderr


def test_what_will_be_built_is_said_first_with_how_long_it_takes(tmp_path: Path) -> None:
    for name in ("git", "go", "c++", "make", "apt-get"):
        (tmp_path / name).symlink_to(TRUE)

    run = _preflight(tmp_path)

    assert run.returncode == 0, run.stderr
    assert re.search(r"llama-server \S+: about \d+ min", run.stdout)
    assert re.search(r"Kubernetes \S+, etcd, .*: about \d+ min", run.stdout)
    assert str(tmp_path / "cache") in run.stdout


def test_a_part_of_the_tests_needs_no_more_than_it_runs(tmp_path: Path) -> None:
    (tmp_path / "git").symlink_to(TRUE)

    run = _preflight(tmp_path, T="tests/core/test_planner.py")

    assert (run.returncode, run.stdout) == (0, "")


def _make(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", *argv],
        cwd=REPOSITORY,
        env=clean | {"MAKEFLAGS": ""} | env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _preflight(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.suite.preflight"],
        cwd=REPOSITORY,
        env={"PATH": str(path), "XDG_CACHE_HOME": str(path / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
