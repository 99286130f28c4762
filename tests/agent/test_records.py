"""What is kept of a process on disk, read back as it was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.process.launch import Child, Identity
from agent.process.model_state import Quarantined, Reloading, ReloadStage
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.core.observation import Location
from reconciler.fleet.command import Command, KeyPlace, Probe
from reconciler.fleet.workload import PoolNeed
from tests.support.owner import launch

FULL = replace(
    launch("chat", 20_000),
    command=Command(
        ("engine", "--port", "20000"),
        env={"A": "b"},
        files={"preset.ini": "[a]"},
        links={"a.gguf": "/models/a"},
        key=KeyPlace("API_KEY", "/state/key"),
        probe=Probe("/ok", None, "/slots", ("/metrics", "waiting"), True, ("/v1", "{}"), True),
    ),
    source=Location("chat.yaml", 3, "c0ffee"),
    needs=(PoolNeed("host", 3, 4, (("sha", 2),)),),
)
BARE = ProcessRecord(launch("chat", 20_000), wanted=False, boot="b")
RUNS = ProcessRecord(
    FULL,
    wanted=True,
    boot="b",
    marker="m",
    child=Child(Identity(7, "started", "b"), "m", 1.5, adopted=True),
    was_ready=True,
    ready_since=2.5,
    failures=3,
    reason="Ready",
    message="it answers",
    start_seconds=1.25,
    reloading=Reloading(FULL, frozenset({"a", "b"}), ReloadStage.DUE, ("b",)),
    quarantined=(Quarantined("x", "Corrupt", "cut", 5.5), Quarantined("y", "Corrupt", "cut")),
)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.mark.parametrize("record", [BARE, RUNS], ids=["bare", "runs"])
def test_a_record_is_read_as_it_was_written(state: StateDir, record: ProcessRecord) -> None:
    Records(state).write(record)

    assert Records(state).read_all() == Records(state).load() == (record,)


def test_what_an_older_version_did_not_write_is_absent(state: StateDir) -> None:
    Records(state).write(RUNS)
    path = state.record_file(RUNS.launch.ref)
    data = json.loads(path.read_text())
    for name in ("readySince", "reloading", "quarantined"):
        del data[name]
    for name in ("links", "key"):
        del data["launch"][name]
    for name in ("queue", "trial", "connections"):
        del data["launch"]["probe"][name]
    data["launch"]["probe"]["loaded"] = data["launch"]["probe"].pop("live")
    data["launch"]["needs"] = [["host", 3, 4]]
    path.write_text(json.dumps(data))

    probe = Probe("/ok", None, "/slots", live=True)
    command = Command(FULL.command.argv, FULL.command.env, FULL.command.files, probe)
    older = replace(FULL, command=command, needs=(PoolNeed("host", 3, 4),))
    assert Records(state).read_all() == (
        replace(RUNS, launch=older, ready_since=None, reloading=None, quarantined=()),
    )


def process_of(**changed: object) -> Callable[[Any], object]:
    return lambda data: data["process"].update(changed)


@pytest.mark.parametrize(
    ("damage", "stays"),
    [
        (process_of(pid=1), False),
        (lambda data: data.update(marker=None), False),
        (lambda data: data.update(version=0), False),
        (lambda data: data.update(version=99, launch={}), True),  # a later version reads it
        (lambda data: data.update(launch={}), False),
    ],
    ids=["init", "no marker", "no version", "a newer version", "no launch"],
)
def test_a_record_that_cannot_be_ours_is_moved_aside_and_a_newer_one_is_left(
    state: StateDir, damage: Callable[[Any], object], stays: bool
) -> None:
    Records(state).write(RUNS)
    path = state.record_file(RUNS.launch.ref)
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))

    assert Records(state).read_all() == ()
    assert path.exists(), "who only looks moves nothing"
    assert Records(state).load() == ()
    assert path.exists() is stays
