"""What a round of chaos breaks in a cluster. A fault is a generator: up to its `yield` it breaks
something, then it heals that; what it notes is the round's story."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.objects import ObjectId
from tests.support import rounds
from tests.support.cluster_chaos import ClusterWorld
from tests.support.cluster_declared import POOL, SPARE, TEAM, Declared
from tests.support.cluster_hands import (
    deleted_by_hand,
    documents_of_the_mac_deleted,
    edit,
    edited_by_hand,
    finalizer_hangs,
    inventory_deleted,
    lease_deleted,
    marks_stripped,
)
from tests.support.wait import wait_for

Fault = rounds.Fault[ClusterWorld]

_PLURALS = ("fleets", "fleetnodes", "models", "inferenceservices")


# What happens to the cluster


def api_server_killed(world: ClusterWorld) -> Iterator[None]:
    """While a change is applied."""
    _push_a_change(world)
    _let_it_begin(world)
    world.cluster.stop_part("kube-apiserver", kill=True)
    yield
    world.cluster.start_api()


def etcd_killed(world: ClusterWorld) -> Iterator[None]:
    _push_a_change(world)
    _let_it_begin(world)
    world.cluster.stop_part("etcd", kill=True)
    yield
    world.cluster.start_etcd()


def definitions_deleted(world: ClusterWorld) -> Iterator[None]:
    """Each of our objects goes with its definition; what runs has to stay."""
    world.note("  the definitions are deleted")
    world.kubectl("delete", "crd", *(f"{p}.{GROUP}" for p in _PLURALS), "--wait=false")
    yield
    world.reinstall()


def namespace_deleted(world: ClusterWorld) -> Iterator[None]:
    """It takes a service with it, and somebody creates it again."""
    world.note(f"  the namespace {TEAM} is deleted")
    world.touched.add(POOL[0])
    delete = ("delete", "namespace", TEAM, "--wait=false")
    world.kubectl(*delete)
    yield
    world.set_right(*delete)  # where nobody took it: etcd may have been dead

    def is_gone() -> bool:
        with contextlib.suppress(ClusterError):  # not for long: what else is broken heals
            return world.laws.api.get(ObjectId("", "Namespace", "", TEAM)) is None
        return False

    wait_for(is_gone, "the namespace is gone")
    world.cluster.namespace(TEAM)


def quota_exceeded(world: ClusterWorld) -> Iterator[None]:
    """No Service can be made, and one is deleted."""
    name = world.in_default()
    world.note(f"  a quota allows no Services, and that of {name} is deleted")
    world.kubectl("create", "quota", "tight", "--hard=count/services=0")
    world.kubectl("delete", "service", name, "--wait=false")
    yield
    world.set_right("delete", "quota", "tight", "--ignore-not-found")


# What happens on the way to it


def storm_of_429(world: ClusterWorld) -> Iterator[None]:
    _push_a_change(world)
    world.proxy.throttle(world.random.randrange(5, 60), retry_after_s=1)
    yield


def latency(world: ClusterWorld) -> Iterator[None]:
    world.note("  each answer takes longer")
    world.proxy.latency_s = world.random.uniform(0.05, 0.4)
    _push_a_change(world)
    yield
    world.proxy.latency_s = 0.0


def connections_cut(world: ClusterWorld) -> Iterator[None]:
    """Those of watches too; and nobody is let in for a while."""
    world.note("  connections are cut")
    world.proxy.refuses = world.random.random() < 0.5
    world.proxy.cut()
    _push_a_change(world)
    yield
    world.proxy.refuses = False


def half_open(world: ClusterWorld) -> Iterator[None]:
    """Nothing comes through, and nobody is told; then what hung is cut."""
    world.note("  nothing comes through")
    world.proxy.swallows = True
    edit(world)
    yield
    world.proxy.cut()
    world.proxy.swallows = False


def answers_lost(world: ClusterWorld) -> Iterator[None]:
    """Writes are done, and nobody says so."""
    world.note("  answers of writes are lost")
    world.proxy.lose_answers = world.random.randrange(1, 12)
    _push_a_change(world)
    yield
    world.proxy.lose_answers = 0


def history_forgotten(world: ClusterWorld) -> Iterator[None]:
    world.note("  watches are answered with 410")
    world.proxy.gone_watches = world.random.randrange(3, 20)
    world.proxy.cut()
    yield
    world.proxy.gone_watches = 0


# What happens to our programs


def reconciler_killed(world: ClusterWorld) -> Iterator[None]:
    """At any moment of what it does; its Lease outlives it, unless a person sees to that."""
    _push_a_change(world)
    time.sleep(world.random.uniform(0.0, 1.0))
    world.note("  the reconciler is killed")
    world.end_reconciler(world.reconcilers[0], signal.SIGKILL)
    yield
    world.start_reconciler()
    world.free_lease()


def second_reconciler(world: ClusterWorld) -> Iterator[None]:
    """Another one comes, and the first one goes."""
    second = world.start_reconciler()
    _push_a_change(world)
    yield
    second.wait_said("served on port")
    world.note("  another reconciler takes over")
    for running in [other for other in world.reconcilers if other is not second]:
        world.end_reconciler(running, signal.SIGTERM)


def agent_killed(world: ClusterWorld) -> Iterator[None]:
    name = world.random.choice(("mac", "mini"))
    world.note(f"  the agent of {name} is killed")
    world.agents[name].end(signal.SIGKILL)
    yield
    world.start_agent(name)


# What is pushed


def service_changed(world: ClusterWorld) -> Iterator[None]:
    _push_a_change(world)
    yield


def service_scaled(world: ClusterWorld) -> Iterator[None]:
    own = world.declared[world.in_default()]
    own.replicas = 3 - own.replicas
    world.note(f"  {own.name} gets {own.replicas} replicas")
    world.push(f"Scale {own.name}")
    yield


def service_comes_or_goes(world: ClusterWorld) -> Iterator[None]:
    if SPARE in world.declared:
        world.note(f"  {SPARE} is removed")
        del world.declared[SPARE]
    else:
        world.note(f"  {SPARE} is added")
        world.declared[SPARE] = Declared(SPARE, 256)
    world.touched.add(SPARE)
    world.push("Come or go")
    yield


FAULTS: tuple[Fault, ...] = (
    api_server_killed,
    etcd_killed,
    definitions_deleted,
    namespace_deleted,
    quota_exceeded,
    storm_of_429,
    latency,
    connections_cut,
    half_open,
    answers_lost,
    history_forgotten,
    edited_by_hand,
    deleted_by_hand,
    documents_of_the_mac_deleted,
    inventory_deleted,
    lease_deleted,
    marks_stripped,
    finalizer_hangs,
    reconciler_killed,
    second_reconciler,
    agent_killed,
    service_changed,
    service_scaled,
    service_comes_or_goes,
)

HEALED_FIRST: tuple[Fault, ...] = (etcd_killed, api_server_killed)  # so that hands reach it


def _push_a_change(world: ClusterWorld) -> None:
    """Of one or several services, so that there is something in the middle of which to break."""
    names = world.random.sample(sorted(world.declared), world.random.choice((1, 1, 3)))
    for name in names:
        world.change(name)
    world.note(f"  changed: {', '.join(names)}")
    world.push(f"Change {', '.join(names)}")


def _let_it_begin(world: ClusterWorld) -> None:
    """Until the first of it is written, at most: what else is broken may keep it from that."""
    before = len(world.proxy.requests)

    def has_begun() -> bool:
        return any(method == "PATCH" for method, _ in world.proxy.requests[before:])

    with contextlib.suppress(AssertionError):
        wait_for(has_begun, timeout_s=2.0)
