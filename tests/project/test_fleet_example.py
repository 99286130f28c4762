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

from reconciler.api.model import Model
from reconciler.memory import ModelFacts
from reconciler.placement.assignment import assign
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from reconciler.source.open import open_source
from tests.support import forked
from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
RECONCILE = Path(sys.executable).parent / "reconcile"
CHANGES, BLOCKED = 2, 3
SMOLLM2 = ModelFacts(  # as its header says, so that no download is needed to know that it fits
    architecture="llama",
    file_bytes=98_362_432,
    weights_bytes=96_576_768,
    repackable_bytes=0,
    tensor_count=272,
    vocabulary=49_152,
    keys={
        "llama.block_count": 30,
        "llama.context_length": 8192,
        "llama.embedding_length": 576,
        "llama.feed_forward_length": 1536,
        "llama.attention.head_count": 9,
        "llama.attention.head_count_kv": 3,
    },
    has_chat_template=True,
)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy outside of any git repository."""
    return Path(shutil.copytree(REPOSITORY / "fleet-example", tmp_path / "fleet-example"))


def test_the_example_has_no_problem(example: Path) -> None:
    run = _reconcile(example, "validate", "-o", "json")

    assert run.returncode == 0, run.stdout + run.stderr
    answer = json.loads(run.stdout)
    assert answer["valid"] is True
    assert [p["severity"] for p in answer["problems"]] == ["note"]


def test_every_service_of_the_example_fits_the_memory_of_its_node(
    example: Path, tmp_path: Path
) -> None:
    checkout = open_source(str(example), cache_dir=tmp_path / "cache", working_tree=True).fetch()
    fleet = load(checkout, RUNTIMES).fleet
    assert fleet

    found = assign(fleet, {model.ref: SMOLLM2 for model in fleet.all(Model)})
    placed = found.workloads

    assert [finding.rule for finding in found.warnings] == []
    assert {(w.ref.name, w.node) for w in placed} == {
        ("chat", "laptop"),
        ("search", "laptop"),
        ("switch", "laptop"),
        ("summary", "mac-mini"),
        ("assistant", "edge-l4"),
    }
    assert all(w.memory and w.memory.exact for w in placed)


def test_every_file_of_the_example_begins_with_what_it_is_for(example: Path) -> None:
    files = sorted(example.rglob("*.yaml"))

    assert files
    for file in files:
        assert file.read_text().startswith("# "), file


def test_the_plan_for_the_laptop_starts_both_services_of_the_demo(
    example: Path, tmp_path: Path
) -> None:
    run = _reconcile(example, "--dry-run", "--local=laptop", "-o", "json", home=tmp_path / "home")

    # The router is blocked where the machine has no llama-server, and created where it has one.
    assert run.returncode in {CHANGES, BLOCKED}, run.stderr
    assert {("create", "chat"), ("create", "search")} <= _changes(json.loads(run.stdout))


def test_a_change_of_one_service_is_planned_for_that_service_only(
    example: Path, tmp_path: Path
) -> None:
    _git(example, "init", "--quiet")
    _git(example, "add", ".")
    _git(example, "commit", "--quiet", "--message", "Add the fleet")
    chat = example / "services/chat.yaml"
    chat.write_text(chat.read_text().replace("contextSize: 4096", "contextSize: 8192"))

    run = _reconcile(example, "--dry-run", "--from", "HEAD", "-o", "json", home=tmp_path / "home")

    assert run.returncode == CHANGES, run.stderr
    (change,) = json.loads(run.stdout)["changes"]
    assert change["action"] == "replace"
    assert change["ref"]["name"] == "chat"
    assert change["source"]["file"] == "services/chat.yaml"
    assert ("contextSize", 4096, 8192) in {
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
    words = [str(RECONCILE), *argv, "-C", str(fleet)]
    return forked.run(words, env=env, cwd=Path.cwd(), timeout_s=PATIENCE_S)


def _changes(plan: dict[str, Any]) -> set[tuple[str, str]]:
    return {(change["action"], change["ref"]["name"]) for change in plan["changes"]}


def _git(directory: Path, *argv: str) -> None:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *argv], cwd=directory, check=True, timeout=PATIENCE_S)
