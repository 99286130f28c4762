"""What people do to a cluster with kubectl, while a reconciler keeps it. Faults of a round."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.meta import GROUP
from reconciler.kube.objects import FLEET_LABEL, INPUTS_ANNOTATION, PART_OF_LABEL, SERVICE_LABEL
from tests.support.cluster_chaos import ClusterWorld
from tests.support.cluster_declared import MAC
from tests.support.cluster_wipe import SYSTEM

_FINALIZER = "tests.invalid/never"
_APPLIED = f"{GROUP}/applied"


def edited_by_hand(world: ClusterWorld) -> Iterator[None]:
    edit(world)
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


def edit(world: ClusterWorld) -> None:
    """One of the edits that are to be taken back, or a note that stays."""
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
