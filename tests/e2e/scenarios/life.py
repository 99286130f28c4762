"""What happens to a machine: by hand, by accident, and by another fleet."""

from __future__ import annotations

import shutil

from tests.e2e.scenarios.world import Files, Scenario, World, running, serve
from tests.support.fleets import node


def _stopped(world: World) -> None:
    assert world.machine.agent("stop", "a").code == 0


def _renamed(world: World) -> Files:
    return {"node.yaml": node("other", hardware={"memory": "16Gi"})}


def _two_nodes(world: World) -> Files:
    world.local = "--local=here"
    return {"there.yaml": node("there")}


def _without_state(world: World) -> None:
    """Its engines run on, and nobody owns them."""
    shutil.rmtree(world.machine.state)


def _another_fleet(world: World) -> None:
    """A folder beside the first one, with the same node."""
    other = world.folder.with_name("another")
    shutil.copytree(world.folder, other)
    (other / "a.yaml").unlink()
    world.folder = other


ROWS = (
    Scenario(
        "a service was stopped by hand",
        before=running("a", "b"),
        after=(_stopped,),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        "a service was stopped by hand, and is edited",
        before=running("a", "b"),
        after=(_stopped, serve("a", contextSize=256)),
        codes="2 0 0",
        counts="1 create, 1 unchanged",
    ),
    Scenario(
        "the state directory is gone",
        before=running("a"),
        after=(_without_state,),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "the only node gets another name",
        before=running("a"),
        after=(_renamed,),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        "one of two nodes is left, and it is another machine's",
        before=(_two_nodes, *running("a", placement={"nodes": ["here"]})),
        after=({"node.yaml": None}, serve("a", placement={"nodes": ["there"]})),
        codes="3 3 3",
        counts="no plan",
        words=("has no FleetNode here (it has there): held, as it runs",),
    ),
    Scenario(
        "another fleet has other services",
        before=running("a"),
        after=(_another_fleet, serve("b")),
        codes="3 3 3",
        counts="1 create, 1 NeedsConfirmation",
    ),
    Scenario(
        "another fleet has a service of the same name",
        before=running("a"),
        after=(_another_fleet, serve("a", contextSize=256)),
        codes="3 3 3",
        counts="1 NeedsConfirmation",
        words=("1 of 1 services would stop or be replaced; they were started from another fleet",),
    ),
)
