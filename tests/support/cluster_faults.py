"""What a round of chaos breaks in a cluster. A fault is a generator: up to its `yield` it breaks
something, then it heals that; what it notes is the round's story."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

from reconciler.api.meta import GROUP
from reconciler.kube.objects import FLEET_LABEL, INPUTS_ANNOTATION, PART_OF_LABEL, SERVICE_LABEL
from tests.support.cluster import SYSTEM
from tests.support.cluster_chaos import MAC, POOL, SPARE, TEAM, ClusterWorld, Declared
from tests.support.wait import wait_for

Fault = Callable[[ClusterWorld], Iterator[None]]

_FINALIZER = "tests.invalid/never"
_APPLIED = f"{GROUP}/applied"
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
    """It takes a service with it, and somebody makes it anew."""
    world.note(f"  the namespace {TEAM} is deleted")
    world.touched.add(POOL[0])
    world.kubectl("delete", "namespace", TEAM, "--wait=false")
    yield

    def is_gone() -> bool:
        return "NotFound" in world.kubectl("get", "namespace", TEAM)

    wait_for(is_gone, "the namespace is gone", timeout_s=60)
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
    _edit(world)
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


# What people do with kubectl


def edited_by_hand(world: ClusterWorld) -> Iterator[None]:
    _edit(world)
    yield


def deleted_by_hand(world: ClusterWorld) -> Iterator[None]:
    name = world.in_default()
    kind = world.random.choice(("deployment", "service", "isvc", "model", "fleetnode", "fleet"))
    named = {"model": "phi", "fleetnode": "edge", "fleet": "home"}.get(kind, name)
    world.note(f"  {kind} {named} is deleted")
    if kind == "deployment":
        world.touched.add(name)
    world.kubectl("delete", kind, named, "--wait=false")
    yield


def documents_of_the_mac_deleted(world: ClusterWorld) -> Iterator[None]:
    """They come back, and nothing stops meanwhile."""
    name = world.random.choice(MAC)
    kind, named = world.random.choice((("isvc", name), ("fleetnode", "mac"), ("model", "tiny")))
    world.note(f"  {kind} {named} is deleted")
    world.kubectl("delete", kind, named, "--wait=false")
    yield


def inventory_deleted(world: ClusterWorld) -> Iterator[None]:
    world.note("  the set's parent is deleted")
    world.kubectl("delete", "configmap", "fleet-home", "-n", SYSTEM, "--wait=false")
    yield


def lease_deleted(world: ClusterWorld) -> Iterator[None]:
    world.note("  the Lease is deleted")
    world.free_lease()
    yield


def marks_stripped(world: ClusterWorld) -> Iterator[None]:
    """A label or an annotation of ours. Without the fleet's label an object is nobody's: a person
    puts that one back."""
    name = world.in_default()
    kind = world.random.choice(("deployment", "service"))
    verb, mark = world.random.choice(
        (
            ("label", PART_OF_LABEL),
            ("label", SERVICE_LABEL),
            ("label", FLEET_LABEL),
            ("annotate", _APPLIED),
            ("annotate", INPUTS_ANNOTATION),
        )
    )
    world.note(f"  {mark} of {kind} {name} is taken away")
    world.kubectl(verb, kind, name, f"{mark}-")
    yield
    if mark == FLEET_LABEL:
        world.set_right("label", kind, name, f"{FLEET_LABEL}=home", "--overwrite")


def finalizer_hangs(world: ClusterWorld) -> Iterator[None]:
    """Something that is deleted and does not go, under a name that is needed."""
    name = world.in_default()
    world.note(f"  Service {name} is deleted and waits for a finalizer")
    patch = f'{{"metadata": {{"finalizers": ["{_FINALIZER}"]}}}}'
    world.kubectl("patch", "service", name, "--type=merge", "-p", patch)
    world.kubectl("delete", "service", name, "--wait=false")
    yield
    free = '[{"op": "remove", "path": "/metadata/finalizers"}]'
    if _FINALIZER in world.kubectl("get", "service", name, "-o", "jsonpath={.metadata}"):
        world.set_right("patch", "service", name, "--type=json", "-p", free)


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
    world.note("  the agent is killed")
    assert world.agent is not None
    world.agent.end(signal.SIGKILL)
    yield
    world.start_agent()


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


def _edit(world: ClusterWorld) -> None:
    name = world.in_default()
    label = ("label", "service", name, f"{GROUP}/note=mine", "--overwrite")
    words = world.random.choice(
        (
            ("scale", "deployment", name, "--replicas=3"),
            ("set", "image", f"deployment/{name}", "*=registry.invalid/other:1"),
            ("patch", "service", name, "-p", '{"spec": {"ports": [{"port": 8080, "name": "x"}]}}'),
            ("patch", "isvc", name, "--type=merge", "-p", '{"spec": {"contextSize": 4096}}'),
            label,
        )
    )
    world.note(f"  {' '.join(words[:3])} by hand")
    world.kubectl(*words)
