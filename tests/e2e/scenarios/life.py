"""What happens to a machine: by hand, by accident, and by another fleet."""

from __future__ import annotations

import os
import shutil
import signal
import socket

from reconciler.api.meta import HOLD_ANNOTATION
from tests.e2e.scenarios.world import Files, Scenario, World, gone, on_port, running, serve
from tests.support.fleets import document, node
from tests.support.one_pass import BLOCKED
from tests.support.pids import alive
from tests.support.wait import wait_for


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


def killed(world: World) -> None:
    _signal(world, signal.SIGKILL)


def _hung(world: World) -> None:
    _signal(world, signal.SIGSTOP)


def _signal(world: World, number: signal.Signals) -> None:
    pid = world.pids()["a"]
    os.kill(pid, number)
    if number == signal.SIGKILL:
        wait_for(lambda: not alive(pid))


def _reports(world: World) -> Files:
    return {"fleet.yaml": document("Fleet", "fleet", {"drift": "report"})}


def _held(world: World) -> Files:
    annotations = {HOLD_ANNOTATION: "true"}
    spec = {"modelRef": "tiny"}
    return {"a.yaml": document("InferenceService", "a", spec, annotations=annotations)}


def _never_ran(world: World) -> None:
    """Its port was taken, and is free by now."""
    with socket.create_server(("127.0.0.1", world.ports[0])):
        assert world.run("--once", "--timeout", "1s").code == BLOCKED


ROWS = (
    Scenario(
        "an engine was killed",
        before=running("a", "b"),
        after=(killed,),
        codes="2 0 0",
        counts="1 drift, 1 unchanged",
        words=("its process ended while no agent ran to start it again",),
    ),
    Scenario(
        "an engine was killed, and drift is reported only",
        before=(_reports, *running("a", "b")),
        after=(killed,),
        codes="2 0 0",
        counts="1 drift, 1 unchanged",
    ),
    Scenario(
        "an engine was killed, and its service is edited",
        before=running("a", "b"),
        after=(killed, serve("a", contextSize=256)),
        codes="2 0 0",
        counts="1 replace, 1 unchanged",
    ),
    Scenario(
        "an engine was killed, and its service is held",
        before=(_held, *running("b")),
        after=(killed,),
        codes="2 0 0",
        counts="1 drift, 1 unchanged",
    ),
    Scenario(
        "an engine was killed, and its service is to go",
        before=running("a", "b"),
        after=(killed, gone("a")),
        codes="2 0 0",
        counts="1 delete, 1 unchanged",
    ),
    Scenario(
        "an engine hangs",
        before=running("a", "b"),
        after=(_hung,),
        codes="3 3 3",
        counts="2 unchanged",
        words=("default/a  NotResponding: no answer on port ", "`fleet-agent restart default/a"),
        timeout="3s",
    ),
    Scenario(
        "a copy of a fleet has a service that never ran",
        before=(on_port("a", 0), _never_ran),
        after=(_another_fleet, on_port("a", 0)),
        codes="2 0 0",
        counts="1 create",
    ),
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
        "a service moves to a node that does not answer",
        before=(_two_nodes, *running("a", placement={"nodes": ["here"]})),
        after=(serve("a", placement={"nodes": ["there"]}),),
        codes="3 3 3",
        counts="1 SuccessorUnknown",
        words=("it stays on node here until it is ready on node there",),
        timeout="2s",
        differs="whether its successor answers there in time is in no plan",
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
