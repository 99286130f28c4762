"""What a node has room for, and what it takes."""

from __future__ import annotations

import os
import signal

import psutil

from tests.e2e.scenarios.world import (
    Files,
    Scenario,
    Step,
    World,
    applied,
    confirmed,
    gone,
    here,
    running,
    serve,
)
from tests.support.wait import wait_for


def _room(*, services: int, more: int = 0) -> Step:
    """A budget of what so many services of the model need, and some bytes more."""

    def step(world: World) -> Files:
        if "need" not in world.kept:
            world.write(serve("probe"))
            (change,) = world.run("--dry-run", "-o", "json").json()["changes"]
            world.kept["need"] = change["impact"]["memory"][0]["afterBytes"]
            world.write(gone("probe"))
        budget = services * world.kept["need"] + more
        return here(memory={"budget": budget})

    return step


def _ended(world: World) -> None:
    pid = world.pids()["a"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(pid))


ROWS = (
    Scenario(
        "an engine was killed whose node got room for another since it began",
        before=(_room(services=1), *running("a"), _room(services=2), *running("b")),
        after=(_ended,),
        codes="2 0 0",
        counts="1 drift, 1 unchanged",
    ),
    Scenario(
        "the budget is what is needed",
        before=(_room(services=1),),
        after=(serve("a"),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "the budget is a byte short",
        before=(_room(services=1, more=-1),),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 MemoryFits",
    ),
    Scenario(
        "the budget falls below what runs",
        before=(_room(services=1), *running("a")),
        after=(_room(services=1, more=-1),),
        codes="3 3 3",
        counts="1 unchanged, 1 MemoryFits",
    ),
    Scenario(
        "what runs grows beyond the budget",
        before=(_room(services=1), *running("a")),
        after=(serve("a", contextSize=99_999),),
        codes="3 3 3",
        counts="1 unchanged, 1 MemoryFits",
    ),
    Scenario(
        "memory goes from one service to another",
        before=(_room(services=1), *running("a")),
        after=(gone("a"), serve("b")),
        codes="2 0 0",
        counts="1 create, 1 delete",
    ),
    Scenario(
        "room for one of two, and both are new",
        before=(_room(services=1),),
        after=(serve("low", priority="low"), serve("vip", priority="critical")),
        codes="3 3 3",
        counts="1 create, 1 MemoryFits",
    ),
    Scenario(
        "room for one of two, and one runs",
        before=(_room(services=1), serve("low", priority="low"), applied),
        after=(serve("vip", priority="critical"),),
        codes="3 3 3",
        counts="1 unchanged, 2 MemoryFits",
    ),
    Scenario(
        "a node is drained",
        before=running("a", "b"),
        after=(here(drain=True),),
        codes="3 3 3",
        counts="1 NeedsConfirmation, 2 NodeUnavailable",
    ),
    Scenario(
        "a node is drained, and that is confirmed",
        before=running("a", "b"),
        after=(here(drain=True), confirmed),
        codes="3 3 3",
        counts="2 stop, 2 NodeUnavailable",
    ),
    Scenario(
        "a node takes nothing new",
        before=running("a"),
        after=(here(unschedulable=True), serve("b")),
        codes="3 3 3",
        counts="1 unchanged, 1 NodeTakesNothingNew",
    ),
)
