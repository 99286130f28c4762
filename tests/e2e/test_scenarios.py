"""The contract of a dry run: what it says is what the pass then finds and does.

The rows, and how to add one: `scenarios/__init__.py`. pytest -s prints the table.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.scenarios import SCENARIOS, Scenario, World, counts, play
from tests.e2e.scenarios.world import here, serve, weights
from tests.support.fleets import model, node, service
from tests.support.one_pass import CHANGES, OK, Move, decided, wander
from tests.support.pids import alive
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

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
    before, after = (json.dumps(decided(each), indent=1).splitlines() for each in (said, done))
    assert not [*unified_diff(before, after, "said", "done")], everything
    assert done.code == (OK if said.code == CHANGES else said.code)


@pytest.mark.parametrize("fleet", ["a folder", "a work tree"])
def test_after_any_edits_of_services_that_share_all_a_dry_run_says_what_the_pass_does(
    fleet: str, world: World
) -> None:
    """Three services, of two models, on two nodes of which this machine is one: with ports and
    memory for fewer than three."""
    world.local = "--local=here"
    world.do((here(), weights, {"there.yaml": node("there"), **_MODELS}))
    world.write({"other.gguf": world.tiny + bytes(64), **serve("a", "b", "c", **_ON_HERE)})
    moves = (*_edits(world), *_accidents(world))
    if fleet == "a work tree":
        moves = tuple(_committing(world, move) for move in moves) + _checkouts(world)
    wander(moves, world.run, repair=moves[0], steps=_STEPS)


_STEPS = int(os.environ.get("WALK_STEPS", "3"))
_MODELS = {"other.yaml": model("other", source="other.gguf")}
_ON_HERE = {"placement": {"nodes": ["here"]}}
_ROOM: tuple[dict[str, Any], ...] = ({}, *({"memory": {"budget": n * 320 << 20}} for n in (1, 2)))


def _edits(world: World) -> tuple[Move, ...]:
    def edit() -> None:
        spec: dict[str, Any] = {"contextSize": 256 * random.randint(1, 4), **_ON_HERE}
        if random.random() < 0.5:
            spec |= {"endpoint": {"port": random.choice(world.ports)}}
        if random.random() < 0.2:
            spec |= random.choice(({"placement": {"nodes": ["there"]}}, {"suspend": True}))
        name, served = random.choice("abc"), random.choice(("tiny", "other"))
        world.write({f"{name}.yaml": service(name, served, **spec)})

    def remove() -> None:
        (world.folder / f"{random.choice('abc')}.yaml").unlink(missing_ok=True)

    def replace_bytes() -> None:
        world.write({"other.gguf": world.tiny + bytes(random.randint(1, 9))})

    def change_budget() -> None:
        world.write(here(**random.choice(_ROOM)))

    return (edit, edit, edit, edit, remove, replace_bytes, change_budget, change_budget)


def _accidents(world: World) -> tuple[Move, ...]:
    """What happens beside the fleet."""

    def kill() -> None:
        pids = [*world.pids().values()][: random.randint(1, 2)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(alive, pids)))

    def stop_by_hand() -> None:
        world.machine.agent("stop", random.choice("abc"))

    def empty_the_store() -> None:
        shutil.rmtree(world.machine.state / "models", ignore_errors=True)

    def take_a_port() -> None:
        number = random.randrange(len(world.ports))
        if world.ports[number] not in {i.port for i in world.machine.instances().values()}:
            world.hold_port(number)

    def give_ports_back() -> None:
        world.ends.close()

    return (kill, stop_by_hand, empty_the_store, take_a_port, give_ports_back)


def _committing(world: World, move: Move) -> Move:
    def committed() -> None:
        move()
        if not (world.folder / ".git").exists():
            world.git("init", "-q", "--initial-branch=main")
        world.git("add", "--all", ".")
        world.git("commit", "-q", "--allow-empty", "-m", move.__name__)

    committed.__name__ = move.__name__
    return committed


def _checkouts(world: World) -> tuple[Move, ...]:
    def go_back() -> None:
        if (world.folder / ".git").exists():
            heads = world.git("rev-list", "--all", "--max-count=5").split()
            world.git("checkout", "-q", random.choice(heads))

    def go_on() -> None:
        if (world.folder / ".git").exists():
            world.git("checkout", "-q", "main")

    return (go_back, go_on)
