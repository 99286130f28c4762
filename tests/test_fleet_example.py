"""The shipped example is a fleet that works: it validates, fits its memory, and can be planned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parent.parent
RECONCILE = Path(sys.executable).parent / "reconcile"
CHANGES, BLOCKED = 2, 3


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy outside of any git repository."""
    return Path(shutil.copytree(REPOSITORY / "fleet-example", tmp_path / "fleet-example"))


def test_the_example_has_no_problem(example: Path) -> None:
    run = _reconcile(example, "validate", "-o", "json")

    assert run.returncode == 0, run.stdout + run.stderr
    answer = json.loads(run.stdout)
    assert answer["valid"] is True
    assert [p for p in answer["problems"] if p["severity"] != "warning"] == []


def test_every_file_of_the_example_begins_with_what_it_is_for(example: Path) -> None:
    files = sorted(example.rglob("*.yaml"))

    assert files
    for file in files:
        assert file.read_text().startswith("# "), file


def test_the_plan_for_the_laptop_starts_the_chat_service(example: Path, tmp_path: Path) -> None:
    run = _reconcile(example, "--dry-run", "--local=laptop", "-o", "json", home=tmp_path / "home")

    # The router is blocked where the machine has no llama-server, and created where it has one.
    assert run.returncode in {CHANGES, BLOCKED}, run.stderr
    assert ("create", "chat") in _changes(json.loads(run.stdout))


def test_a_change_of_one_service_is_planned_for_that_service_only(
    example: Path, tmp_path: Path
) -> None:
    _git(example, "init", "--quiet")
    _git(example, "add", ".")
    _git(example, "commit", "--quiet", "--message", "Add the fleet")
    chat = example / "services/chat.yaml"
    chat.write_text(chat.read_text().replace("contextSize: 8192", "contextSize: 16384"))

    run = _reconcile(example, "--dry-run", "--from", "HEAD", "-o", "json", home=tmp_path / "home")

    assert run.returncode == CHANGES, run.stderr
    (change,) = json.loads(run.stdout)["changes"]
    assert change["action"] == "replace"
    assert change["ref"]["name"] == "chat"
    assert change["source"]["file"] == "services/chat.yaml"
    assert ("contextSize", 8192, 16384) in {
        (field["path"].removeprefix("spec."), field["before"], field["after"])
        for field in change["fields"]
    }


def _reconcile(
    fleet: Path, *argv: str, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The real program. With `home`, its state and caches go there."""
    env = dict(os.environ)
    if home is not None:
        home.mkdir()
        env |= {"HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home)}
    return subprocess.run(
        [RECONCILE, *argv, "-C", fleet],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _changes(plan: dict[str, Any]) -> set[tuple[str, str]]:
    return {(change["action"], change["ref"]["name"]) for change in plan["changes"]}


def _git(directory: Path, *argv: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *argv], cwd=directory, check=True, timeout=30)
