"""Ports that services state, and who has them."""

from __future__ import annotations

from tests.e2e.scenarios.world import Scenario, World, applied, gone, on_port, running, serve


def _taken(world: World) -> None:
    world.hold_port(0)


ROWS = (
    Scenario(
        "a service takes the port of one that moves on",
        before=(on_port("a", 0), on_port("b", 1), applied),
        after=(on_port("a", 1), on_port("b", 2)),
        codes="2 0 0",
        counts="2 replace",
    ),
    Scenario(
        "a service takes the port of one that goes",
        before=(on_port("a", 0), on_port("b", 1), applied),
        after=(on_port("a", 1), gone("b")),
        codes="2 0 0",
        counts="1 delete, 1 replace",
    ),
    Scenario(
        "a port is stated",
        before=running("a"),
        after=(on_port("a", 0),),
        codes="2 0 0",
        counts="1 replace",
    ),
    Scenario(
        "a port is stated no more",
        before=(on_port("a", 0), applied),
        after=(serve("a"),),
        codes="2 0 0",
        counts="1 replace",
    ),
    Scenario(
        "two services state one port",
        after=(on_port("a", 0), on_port("b", 0)),
        codes="3 3 3",
        counts="2 PortConflict",
    ),
)
