"""The contract of a dry run: what it says is what the pass then finds and does.

The rows, and how to add one: `scenarios/__init__.py`. pytest -s prints the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.e2e.scenarios import SCENARIOS, Scenario, World, counts, play
from tests.support.one_pass import CHANGES, OK, decided
from tests.support.reconciler import Machine

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(machine: Machine, tmp_path: Path, tiny: Path) -> Iterator[World]:
    folder = tmp_path / "fleet"
    folder.mkdir()
    made = World(machine, folder, tiny.read_bytes())
    with made.ends:
        yield made


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[row.name for row in SCENARIOS])
def test_a_dry_run_says_what_the_pass_does(scenario: Scenario, world: World) -> None:
    played = play(scenario, world)
    said, done, again, restarted = played

    print(f"| {played.codes} | {counts(said)} | {scenario.name} |")
    three = (said, done, again)
    everything = "\n".join(f"--- {each.code}: {counts(each)}\n{each.err}" for each in three)
    assert (played.codes, counts(said)) == (scenario.codes, scenario.counts), everything
    assert not restarted, everything
    for words in scenario.words:
        assert words in said.out + everything, said.out
    if scenario.differs:
        return
    plans = (json.dumps(decided(each), indent=1).splitlines() for each in (said, done))
    assert not [*unified_diff(*plans, "said", "done")], everything
    assert done.code == (OK if said.code == CHANGES else said.code)
