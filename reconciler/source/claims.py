"""Which documents concern a node, read leniently so that documents with errors count too. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.kinds import KIND_TABLE
from reconciler.api.meta import ObjectRef
from reconciler.fleet.fleet import Fleet

if TYPE_CHECKING:
    from reconciler.source.load import Loaded


@dataclass(frozen=True, slots=True)
class _PlacementClaim:
    """The nodes and models that a service names. `nodes` is None if they cannot be read."""

    nodes: tuple[str, ...] | None
    selector: Mapping[str, str]
    models: tuple[str, ...]


def slice_of(node: str, loaded: Loaded, fleet: Fleet) -> frozenset[ObjectRef]:
    """The objects that concern a node: its FleetNode, the services that are or could be placed on
    it, with their Models, and the Fleet's policy. `fleet` is the one in force, with stand-ins."""
    own = fleet.get(FleetNode, ObjectRef("FleetNode", "", node))
    labels = own.metadata.labels if own else None
    services = {
        ref: claims
        for ref, claims in _claims(loaded).items()
        if any(_is_for(claim, node, labels) for claim in claims)
    }
    models = {
        ObjectRef("Model", ref.namespace, name)
        for ref, claims in services.items()
        for claim in claims
        for name in claim.models
    }
    policies = {ref for ref in _all_refs(loaded) if ref.kind == "Fleet"}
    return frozenset({ObjectRef("FleetNode", "", node), *services, *models, *policies})


def _claims(loaded: Loaded) -> Mapping[ObjectRef, list[_PlacementClaim]]:
    """Every placement of a service, or of an object of an unknown kind, by its name."""
    claims: defaultdict[ObjectRef, list[_PlacementClaim]] = defaultdict(list)
    valid: Iterable[object] = loaded.standing.objects.values()
    for thing in (*valid, *(item.resource for item in loaded.twice)):
        if isinstance(thing, InferenceService):
            placement = thing.spec.placement
            claim = _PlacementClaim(placement.nodes, placement.node_selector, thing.needed_names)
            claims[thing.ref].append(claim)
    for document in loaded.refused:
        ref = document.ref
        if ref and ref.kind == "InferenceService":
            claims[ref].append(_claim(document.content))
        elif ref and ref.kind not in _OTHERS and (claim := _claim(document.content)).nodes:
            claims[ref].append(claim)  # of a future kind that names nodes as services do
    return claims


_OTHERS = tuple(kind.name for kind in KIND_TABLE.values() if not kind.runs)


def _claim(content: Mapping[Any, Any]) -> _PlacementClaim:
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return _PlacementClaim(None, {}, ())
    placement = spec.get("placement", {})
    placement = placement if isinstance(placement, dict) else {"nodes": None}
    nodes, selector = placement.get("nodes", []), placement.get("nodeSelector", {})
    is_read = isinstance(nodes, list) and isinstance(selector, dict)
    return _PlacementClaim(
        tuple(name for name in nodes if isinstance(name, str)) if is_read else None,
        {str(key): str(value) for key, value in selector.items()} if is_read else {},
        tuple(_models(spec)),
    )


def _models(spec: Mapping[Any, Any]) -> Iterator[str]:
    items = spec.get("models")
    entries = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    drafting = [part.get("speculativeDecoding") for part in (spec, *entries)]
    names = (
        spec.get("modelRef"),
        *(entry.get("name") for entry in entries),
        *(part.get("draftModelRef") for part in drafting if isinstance(part, dict)),
    )
    yield from (name for name in names if isinstance(name, str))


def _is_for(claim: _PlacementClaim, node: str, labels: Mapping[str, str] | None) -> bool:
    """Whether the service names the node, or names none and may be placed here."""
    if claim.nodes:
        return node in claim.nodes
    if claim.nodes is None or labels is None:
        return True
    return all(labels.get(key) == value for key, value in claim.selector.items())


def _all_refs(loaded: Loaded) -> Iterator[ObjectRef]:
    yield from loaded.standing.objects
    yield from (document.ref for document in loaded.refused if document.ref)
