"""Ports that services state, and who has them."""

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
    gone,
    on_port,
    running,
    serve,
)
from tests.support.wait import wait_for


def _taken(number: int) -> Step:
    """A program that is not ours has the port."""
    return lambda world: world.hold_port(number)


def _killed(world: World) -> None:
    """Its process has ended, and nobody has started it again."""
    for pid in world.pids().values():
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: not psutil.pid_exists(pid))  # type: ignore[misc]


def _elsewhere(world: World) -> None:
    """A service of ours has the port, which was started from another state directory."""
    world.do((on_port("other", 0),))
    state = str(world.machine.root / "elsewhere")
    done = world.run("--once", "--timeout", "60s", "--state-dir", state)
    assert done.code == 0, done.out + done.err
    world.do((gone("other"),))


def _stays(world: World) -> Files:
    """Another service states the port that this one was given."""
    port = world.machine.instances()["a"].port
    return serve("b", endpoint={"port": port})


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
    Scenario(
        "two services swap their ports",
        before=(on_port("a", 0), on_port("b", 1), applied),
        after=(on_port("a", 1), on_port("b", 0)),
        codes="2 0 0",
        counts="2 replace",
    ),
    Scenario(
        "three services pass their ports on in a ring",
        before=(on_port("a", 0), on_port("b", 1), on_port("c", 2), applied),
        after=(on_port("a", 1), on_port("b", 2), on_port("c", 0)),
        codes="2 0 0",
        counts="3 replace",
    ),
    Scenario(
        "a service takes the port of one that is suspended",
        before=(on_port("a", 0), on_port("b", 1), applied),
        after=(on_port("a", 1), on_port("b", 1, suspend=True)),
        codes="2 0 0",
        counts="1 replace, 1 stop",
    ),
    Scenario(
        "a service on a stated port is renamed",
        before=(on_port("a", 0), applied),
        after=(gone("a"), on_port("b", 0)),
        codes="2 0 0",
        counts="1 create, 1 delete",
    ),
    Scenario(
        "a program has the port that a new service states",
        before=(_taken(0),),
        after=(on_port("a", 0),),
        codes="3 3 3",
        counts="1 PortInUse",
        words=("end that program, or state another endpoint.port",),
    ),
    Scenario(
        "a program has the port that a service is to move to",
        before=(on_port("a", 1), *running("b"), _taken(0)),
        after=(on_port("a", 0),),
        codes="3 3 3",
        counts="1 unchanged, 1 PortInUse",
        words=("left as it is on port",),
    ),
    Scenario(
        "a program takes the port of a service whose process has ended",
        before=(on_port("a", 0), applied, _killed),
        after=(_taken(0),),
        codes="3 3 3",
        counts="1 PortInUse",
    ),
    Scenario(
        "a service that was started from another state directory has the port",
        before=(_elsewhere,),
        after=(on_port("a", 0),),
        codes="3 3 3",
        counts="1 PortInUse",
        words=("fleet-agent stop default/other --state-dir",),
    ),
    Scenario(
        "a new service states the port that another one was given",
        before=running("a"),
        after=(_stays,),
        codes="3 3 3",
        counts="1 unchanged, 1 PortInUse",
        words=("is default/a's, which stays there",),
    ),
    Scenario(
        "a new service states the port of another one that changes meanwhile",
        before=(on_port("a", 0), applied),
        after=(on_port("a", 0, contextSize=1024), on_port("b", 0)),
        codes="3 3 3",
        counts="1 replace, 1 PortConflict",
        differs="the second dry run has nothing left to change",
    ),
    Scenario(
        "a suspended holder stops although a program has the port of who comes",
        before=(on_port("a", 0), applied, _taken(1)),
        after=(on_port("a", 0, suspend=True), on_port("b", 1)),
        codes="3 3 3",
        counts="1 stop, 1 PortInUse",
    ),
)
