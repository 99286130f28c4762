"""What a node should follow, from what its cluster holds now and what it followed last. Pure.

Nothing is dropped because it is missing in the cluster: a service goes only if there is proof. With
a reconciler that is `FleetNode.status.desired`, a list that is complete because it is written as a
whole. Standalone it is the deletion of that very object while its surroundings are still the same:
see `OwnerUids`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from reconciler.api.digest import digest
from reconciler.api.errors import SourceError
from reconciler.api.meta import GROUP
from reconciler.kube.objects import FLEET_LABEL, Manifest, ObjectId

Objects = Mapping[ObjectId, Manifest]

_NOTHING: Objects = MappingProxyType({})
_METAL = "metal"


@dataclass(frozen=True, slots=True)
class OwnerUids:
    """The surroundings of an object when it was seen: the uids of its CustomResourceDefinition and
    of its namespace.

    Its absence counts only while both are the same and neither is being deleted: a reinstalled
    definition or a deleted namespace takes every object with it, which does not mean that the
    models should stop. None: could not be read, and proves nothing.
    """

    definition: str | None = None
    namespace: str | None = None

    def proves_absence_from(self, now: OwnerUids) -> bool:
        return None not in (self.definition, self.namespace) and self == now


@dataclass(frozen=True, slots=True)
class Followed:
    """What a node follows. `owner_uids` are those of its services, in standalone mode."""

    revision: str
    objects: Objects
    owner_uids: Mapping[ObjectId, OwnerUids] = field(default_factory=lambda: MappingProxyType({}))


def led(node: str, seen: Objects, last: Followed | None, namespace: str | None = None) -> Followed:
    """Follow the reconciler's list in the node's FleetNode. Services in the list that the cluster
    lost are followed as they were. Raises SourceError if there is no list to follow."""
    before = last.objects if last else _NOTHING
    own = seen.get(node_id(node))
    if own is None:
        raise SourceError(f"the cluster has no FleetNode {node}: apply it, or name another --node")
    desired = (own.get("status") or {}).get("desired") or {}
    if not desired.get("revision") or not isinstance(desired.get("services"), list):
        raise SourceError(
            f"FleetNode {node} has no status.desired yet: its reconciler has not said what is to"
            " run here; for a cluster without one, run the agent with --standalone"
        )
    stated, complete = desired.get("digest"), digest(desired["services"])
    if stated not in (None, complete):
        raise SourceError(f"FleetNode {node}: status.desired is incomplete: someone else edited it")
    listed = {
        oid: _listed(oid, entry, seen, before)
        for entry in desired["services"]
        if (oid := _service_id(entry)).namespace == namespace or namespace is None
    }
    leaving = {
        oid: live
        for oid, live in seen.items()
        if oid.kind == "InferenceService"
        and oid not in listed
        and _is_elsewhere(live, node)
        and _fleet_of(live) == _fleet_of(own)
    }
    services = {**listed, **leaving}
    around = _around(own, services.values(), seen, before)
    return Followed(str(desired["revision"]), {**around, node_id(node): own, **services})


def alone(
    own: Manifest, seen: Objects, last: Followed | None, owner_uids: Mapping[ObjectId, OwnerUids]
) -> Followed:
    """Follow the services whose Models require metal, in a cluster without a reconciler. `own` is
    the node's FleetNode, or its stand-in; `owner_uids` those of every service
    seen or followed now. A missing service without proof of its deletion is followed as it was."""
    node = own["metadata"]["name"]
    before = last.objects if last else _NOTHING
    known = last.owner_uids if last else {}
    services = {oid: live for oid, live in seen.items() if _is_claimed(live, node, seen, before)}
    kept = {
        oid: live
        for oid, live in before.items()
        if oid.kind == "InferenceService"
        and oid not in seen
        and not known.get(oid, OwnerUids()).proves_absence_from(owner_uids.get(oid, OwnerUids()))
    }
    followed = {**kept, **services}
    around = _around(own, followed.values(), seen, before)
    return Followed(
        "",
        {**around, node_id(node): own, **followed},
        {
            oid: owner_uids.get(oid, OwnerUids())
            if oid in services
            else known.get(oid, OwnerUids())
            for oid in followed
        },
    )


def undecided(seen: Objects, last: Followed | None) -> frozenset[ObjectId]:
    """Services that were followed and are missing now: their surroundings have to be read."""
    before = last.objects if last else _NOTHING
    return frozenset(o for o in before if o.kind == "InferenceService" and o not in seen)


def node_id(node: str) -> ObjectId:
    return ObjectId(GROUP, "FleetNode", "", node)


def models_of(service: Manifest) -> Iterator[ObjectId]:
    """The Models that a service names."""
    spec, namespace = service.get("spec") or {}, service["metadata"].get("namespace", "")
    names = [spec.get("modelRef"), *(entry.get("name") for entry in spec.get("models") or ())]
    for name in names:
        if isinstance(name, str):
            yield ObjectId(GROUP, "Model", namespace, name)


def _service_id(entry: Mapping[str, Any]) -> ObjectId:
    return ObjectId(GROUP, "InferenceService", str(entry["namespace"]), str(entry["name"]))


def _listed(oid: ObjectId, entry: Mapping[str, Any], seen: Objects, before: Objects) -> Manifest:
    """A service of the list: the live object, unless it is older than the list."""
    live = seen.get(oid)
    if live is not None and _generation(live) >= int(entry.get("generation") or 0):
        return live
    if oid in before:
        return before[oid]
    if live is not None:
        raise SourceError(f"{oid.label} is older than its node's list: waiting for the newer one")
    raise SourceError(f"{oid.label} is in its node's list and not in the cluster")


def _generation(live: Manifest) -> int:
    return int(live["metadata"].get("generation") or 0)


def _is_elsewhere(service: Manifest, node: str) -> bool:
    """Placed on other nodes by name: a running one waits here for its successor there."""
    nodes = _placed_on(service)
    return bool(nodes) and node not in nodes


def _placed_on(service: Manifest) -> tuple[str, ...]:
    placement = (service.get("spec") or {}).get("placement") or {}
    return tuple(placement.get("nodes") or ())


def _is_claimed(live: Manifest, node: str, seen: Objects, before: Objects) -> bool:
    """Whether all its models require metal, and it names no other node."""
    if live.get("kind") != "InferenceService":
        return False
    models = [seen.get(oid) or before.get(oid) for oid in models_of(live)]
    nodes = _placed_on(live)
    return (
        bool(models)
        and all(model is not None and _accelerator(model) == _METAL for model in models)
        and (not nodes or node in nodes)
    )


def _accelerator(model: Manifest) -> str | None:
    hardware = (model.get("spec") or {}).get("hardware") or {}
    return hardware.get("accelerator")


def _around(
    own: Manifest, services: Iterable[Manifest], seen: Objects, before: Objects
) -> dict[ObjectId, Any]:
    """What services need besides themselves: their Models, the nodes they name, the Fleet; as they
    were, where the cluster lost them."""
    services = tuple(services)
    named = {node_id(name) for service in services for name in _placed_on(service)}
    needed = named.union(*(models_of(service) for service in services))
    around = {oid: seen.get(oid) or before.get(oid) for oid in needed}
    fleets = _fleets(own, seen) or {o: m for o, m in before.items() if o.kind == "Fleet"}
    return {**fleets, **{oid: thing for oid, thing in around.items() if thing is not None}}


def _fleets(own: Manifest, seen: Objects) -> dict[ObjectId, Manifest]:
    """Fleets that the node may belong to: a cluster may have several, and a reconciler that applies
    one from git labels its objects."""
    fleets = {oid: fleet for oid, fleet in seen.items() if oid.kind == "Fleet"}
    same = {oid: fleet for oid, fleet in fleets.items() if _fleet_of(fleet) == _fleet_of(own)}
    return same or fleets


def _fleet_of(live: Manifest) -> str | None:
    """The fleet in an object's labels; None if no reconciler applied it."""
    label = (live["metadata"].get("labels") or {}).get(FLEET_LABEL)
    return str(label) if label else None
