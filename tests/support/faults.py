"""What a round of chaos breaks. A fault is a generator: up to its `yield` it breaks something, then
it heals that; what it notes is the round's story."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator

import psutil

from agent.process.identity import marker_of
from tests.support import rounds
from tests.support.chaos import CONTEXTS, NAMES, ChaosWorld
from tests.support.chaos_node import ChaosNode
from tests.support.fleets import service
from tests.support.wait import wait_for

Fault = rounds.Fault[ChaosWorld]

_DAY_S = 86_400
_JUMPS_S = (_DAY_S, -_DAY_S, 3600, -3600, 30, -30)
_KEPT = 24_576  # bytes of a cut answer: more than the header, far from the whole


def agent_killed(world: ChaosWorld) -> Iterator[None]:
    here = _any_node(world)
    world.note(f"  the agent of {here.name} is killed")
    here.end(signal.SIGKILL)
    yield
    here.start()


def agent_ended(world: ChaosWorld) -> Iterator[None]:
    here = _any_node(world)
    world.note(f"  the agent of {here.name} is ended")
    here.end(signal.SIGTERM)
    yield
    here.start()


def power_lost(world: ChaosWorld) -> Iterator[None]:
    """All of one machine's processes end at once, the agent among them."""
    here = _any_node(world)
    world.note(f"  {here.name} loses its power")
    here.end(signal.SIGKILL)
    for name in _of(world, here):
        world.died(name)
    for pid in here.marked():
        _signal(pid, signal.SIGKILL)
    yield
    here.start()


def child_killed(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    world.note(f"  {name} is killed")
    world.died(name)
    _signal(world.pids.get(name), signal.SIGKILL)
    yield


def child_stopped(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    world.note(f"  {name} is stopped for a while")
    stopped = _signal(world.pids.get(name), signal.SIGSTOP)
    yield
    if stopped is not None:
        with contextlib.suppress(psutil.Error):
            stopped.resume()


def download_broken(world: ChaosWorld) -> Iterator[None]:
    name, kind = _any_service(world), world.random.choice(("cut", "reset", "hang", "refusal"))
    kills, models = world.random.random() < 0.4, world.models
    path = world.renew_model(name)
    world.note(f"  the download of {name}'s new model meets a {kind}{' and a kill' * kills}")
    if kind == "hang":
        models.go_on.clear()
    elif kind == "refusal":
        models.status = 503
    else:
        models.cut_paths[path], models.resets = _KEPT, kind == "reset"
    world.changed(name)
    world.push(f"Another model for {name}")
    _wait_a_little(lambda: path in models.requests, world.home(name))
    if kills:
        world.home(name).end(signal.SIGKILL)
    yield
    models.cut_paths.clear()
    models.resets, models.status = False, None
    models.go_on.set()
    world.home(name).start()


def disk_full(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    here = world.home(name)
    world.note(f"  the disk of {here.name} is full")
    here.bent.full = True
    if world.random.random() < 0.6:
        world.note(f"  {name} gets another model meanwhile")
        path = world.renew_model(name)
        world.changed(name)
        world.push(f"Another model for {name}")
        _wait_a_little(lambda: path in world.models.requests, here)
    yield
    here.bent.full = False
    if world.random.random() < 0.5:  # else it finds out by itself
        here.end(signal.SIGKILL)
    here.start()


def port_taken(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    here, pid, port = world.home(name), world.pids.get(name), world.ports.get(name)
    world.note(f"  {name} is killed and a stranger takes port {port}")
    world.died(name)
    world.deaths[name] += 2  # each try that finds it taken counts
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if _signal(pid, signal.SIGKILL) is not None and port and _bind(stranger, port):
            stranger.listen()
            said = here.running.err.count("PortInUse") if here.running else 0
            _wait_a_little(
                lambda: here.running is None or here.running.err.count("PortInUse") > said, here
            )
        yield


def clock_jump(world: ChaosWorld) -> Iterator[None]:
    here, seconds = _any_node(world), world.random.choice(_JUMPS_S)
    world.note(f"  the clock of {here.name} jumps by {seconds} s")
    here.bent.jump(seconds)
    yield
    if world.random.random() < 0.5:
        here.bent.jump(-here.bent.offset_s)


def remote_gone(world: ChaosWorld) -> Iterator[None]:
    if not world.remote_there:
        yield
        return
    world.note("  the remote is gone")
    world.git.stop()
    world.remote_there = False
    here = _any_node(world)
    said = here.running.err.count("source lost") if here.running else 0
    world.wake()
    _wait_a_little(
        lambda: here.running is None or here.running.err.count("source lost") > said, here
    )
    yield
    world.git.start()
    world.remote_there = True
    world.wake()


def bad_commit(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    bad = world.random.choice(
        (
            service(name, f"m-{name}", contextSize=-1),
            service(name, "nobody"),
            "apiVersion: {",
            service(name, f"m-{name}", contextSzie=256),
        )
    )
    world.note(f"  a bad document of {name} is pushed: {bad[-60:]!r}")
    sha = world.repo.publish({f"services/{name}.yaml": bad}, "Break it")
    world.wake()
    here = world.home(name)
    _wait_a_little(lambda: here.running is None or sha in here.running.err, here)
    yield
    world.push("Fix it")


def service_added(world: ChaosWorld) -> Iterator[None]:
    free = [n for names in NAMES.values() for n in names if n not in world.declared]
    if free:
        name = world.random.choice(free)
        world.note(f"  {name} is added")
        world.declare(name)
        world.changed(name)
        world.push(f"Add {name}")
    yield


def service_removed(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    if len(_of(world, world.home(name))) > 1:
        world.note(f"  {name} is removed")
        del world.declared[name]
        world.changed(name)
        world.push(f"Remove {name}")
    yield


def service_changed(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    own = world.declared[name]
    own.context = world.random.choice([size for size in CONTEXTS if size != own.context])
    world.note(f"  {name} gets a context of {own.context}")
    world.changed(name)
    world.push(f"Change {name}")
    yield


def restarted_by_hand(world: ChaosWorld) -> Iterator[None]:
    name = _any_service(world)
    # What is stopped would be let go, and for what cannot start the command waits half a minute.
    if name not in world.stopped and world.deaths.get(name, 0) < 3:
        world.note(f"  {name} is restarted by hand")
        world.touch(name)
        world.home(name).machine.agent("restart", name, "--timeout", "2s")
    yield


def stopped_by_hand(world: ChaosWorld) -> Iterator[None]:
    """It stays stopped through the round's end, and is let go in the next one's beginning."""
    name = _any_service(world)
    # On a full disk it cannot be noted, and the command waits for half a minute. And a change that
    # the agent has not seen yet would end the stop.
    if world.home(name).bent.full or name in world.news:
        yield
        return
    world.note(f"  {name} is stopped by hand")
    world.touch(name)
    done = world.home(name).machine.agent("stop", name)
    if done.code == 0:
        world.stopped.add(name)
    else:
        world.note(f"  ... which fails: {done.err.strip()}")
    yield


FAULTS: tuple[Fault, ...] = (
    agent_killed,
    agent_ended,
    power_lost,
    child_killed,
    child_stopped,
    download_broken,
    disk_full,
    port_taken,
    clock_jump,
    remote_gone,
    bad_commit,
    service_added,
    service_removed,
    service_changed,
    restarted_by_hand,
    stopped_by_hand,
)


def _any_node(world: ChaosWorld) -> ChaosNode:
    return world.nodes[world.random.choice(list(NAMES))]


def _any_service(world: ChaosWorld) -> str:
    return world.random.choice(sorted(world.declared))


def _of(world: ChaosWorld, here: ChaosNode) -> list[str]:
    return [own.name for own in world.declared.values() if own.node == here.name]


def _signal(pid: int | None, number: signal.Signals) -> psutil.Process | None:
    """Send a signal to a service's process where it still runs, and return it."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if pid is not None and marker_of(pid) is not None:
            process = psutil.Process(pid)
            process.send_signal(number)
            return process
    return None


def _bind(stranger: socket.socket, port: int) -> bool:
    """Before the service is back; False where that was faster."""
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            stranger.bind(("127.0.0.1", port))
            return True
        time.sleep(0.002)
    return False


def _wait_a_little(condition: Callable[[], bool], here: ChaosNode) -> None:
    """Until the agent met it; what else is broken may keep it from that."""
    if here.has_begun:
        with contextlib.suppress(AssertionError):
            wait_for(condition, timeout_s=3.0)
