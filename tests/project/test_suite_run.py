"""`python -m tests.suite` as people use it: when tests fail, when it is interrupted."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
SAMPLES = "tests/cases/suite"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the run makes its folder."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start(temporary: Path, sample: str) -> subprocess.Popen[str]:
    words = (sys.executable, "-m", "tests.suite", "--workers", "1", "--seed", "7")
    ours = ("T", "SEED", "WORKERS", "FLEET_TESTS_RUN", "PYTEST_ADDOPTS")
    clean = {k: v for k, v in os.environ.items() if k not in ours and "PYTEST_XDIST" not in k}
    return subprocess.Popen(
        (*words, f"{SAMPLES}/{sample}", "-p", "no:cacheprovider"),
        cwd=REPOSITORY,
        env=clean | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_hear_interrupts,
    )


def _hear_interrupts() -> None:
    """Also where the tests themselves run in a shell's background, which hears none."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def sleepers(temporary: Path) -> list[psutil.Process]:
    """What a sample has started and lives."""

    def is_one(process: psutil.Process) -> bool:
        try:
            return str(temporary) in process.cwd() and "time.sleep(600)" in process.cmdline()[-1]
        except (psutil.Error, IndexError):
            return False

    return [process for process in psutil.process_iter() if is_one(process)]


def test_a_failure_ends_with_where_its_files_are_and_the_command_that_repeats_it(
    temporary: Path,
) -> None:
    run = start(temporary, "fails.py")

    said, _ = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 1
    *_, last = re.findall(r"^(?:make test|.*: make test) .*$", said, re.MULTILINE)
    assert f'make test SEED=7 T="{SAMPLES}/fails.py::test_fails"' in said
    assert last == 'all that failed: make test SEED=7 T="--lf"'
    files, report = (re.findall(rf"{name}: +(\S+)", said)[0] for name in ("files", "report"))
    assert Path(files, "log").read_text() == "what happened"
    assert "as it should" in Path(report).read_text()
    assert "1 failed, 1 passed" in said


def test_words_that_mean_no_test_are_named(temporary: Path) -> None:
    run = start(temporary, "nowhere.py")

    said, _ = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 1
    assert re.search(rf"no test is what these words mean: {SAMPLES}/nowhere.py", said)
    assert list(temporary.iterdir()) == []


def test_who_interrupts_a_run_finds_nothing_of_it(temporary: Path) -> None:
    run = start(temporary, "hangs.py")
    wait_for(lambda: bool(sleepers(temporary)), "the test's process")

    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 130
    assert "interrupted" in said
    assert sleepers(temporary) == []
    assert list(temporary.iterdir()) == []


def test_a_process_that_a_test_leaves_behind_is_named_and_ended(temporary: Path) -> None:
    run = start(temporary, "leaves.py")

    said, _ = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 1
    command = shlex.join((sys.executable, "-c", "import time; time.sleep(600)"))
    assert f"left behind by a test: {command}" in said
    assert sleepers(temporary) == []
