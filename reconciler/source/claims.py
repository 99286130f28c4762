"""The nodes, Models and services that documents name, so that a document with errors counts for
these alone. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.kinds import KIND_TABLE
from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
from reconciler.fleet.fleet import Fleet

if TYPE_CHECKING:
    from reconciler.source.load import Loaded


@dataclass(frozen=True, slots=True)
class Claim:
    """The names in a document that fails its schema. `nodes` is None if they cannot be read;
    `members` are the services of a pool."""

    nodes: tuple[str, ...] | None
    selector: Mapping[str, str]
    models: tuple[str, ...]
    members: tuple[ObjectRef, ...] = ()

    @classmethod
    def of(cls, content: Mapping[Any, Any]) -> Claim:
        """Read what can be read. Never raises for JSON, whatever is in it."""
        spec = content.get("spec")
        if not isinstance(spec, dict):
            return cls(None, {}, ())
        placement = spec.get("placement", {})
        placement = placement if isinstance(placement, dict) else {"nodes": None}
        nodes, selector = placement.get("nodes", []), placement.get("nodeSelector", {})
        is_read = isinstance(nodes, list) and isinstance(selector, dict)
        return cls(
            tuple(name for name in nodes if isinstance(name, str)) if is_read else None,
            {str(key): str(value) for key, value in selector.items()} if is_read else {},
            tuple(_models(spec)),
            tuple(_members(content, spec)),
        )


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


def _claims(loaded: Loaded) -> Mapping[ObjectRef, list[Claim]]:
    """Every placement of a service, or of an object of an unknown kind, by its name."""
    claims: defaultdict[ObjectRef, list[Claim]] = defaultdict(list)
    valid: Iterable[object] = loaded.standing.objects.values()
    for thing in (*valid, *(item.resource for item in loaded.twice)):
        if isinstance(thing, InferenceService):
            placement = thing.spec.placement
            claim = Claim(placement.nodes, placement.node_selector, thing.needed_names)
            claims[thing.ref].append(claim)
    for document in loaded.refused:
        ref = document.ref
        if ref and ref.kind == "InferenceService":
            claims[ref].append(document.claim)
        elif ref and ref.kind not in _OTHERS and document.claim.nodes:
            claims[ref].append(document.claim)  # of a future kind that names nodes as services do
    return claims


_OTHERS = tuple(kind.name for kind in KIND_TABLE.values() if not kind.runs)


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


def _members(content: Mapping[Any, Any], spec: Mapping[Any, Any]) -> Iterator[ObjectRef]:
    entries = spec.get("members")
    for entry in entries if isinstance(entries, list) else ():
        named = entry.get("inferenceServiceRef") if isinstance(entry, dict) else None
        name = named.get("name") if isinstance(named, dict) else None
        if isinstance(name, str):
            yield ObjectRef("InferenceService", namespace_of(content), name)


def namespace_of(content: Mapping[Any, Any]) -> str:
    """Return the namespace that a document states, or the default one."""
    metadata = content.get("metadata")
    stated = metadata.get("namespace") if isinstance(metadata, dict) else None
    return stated if isinstance(stated, str) and stated else DEFAULT_NAMESPACE


def _is_for(claim: Claim, node: str, labels: Mapping[str, str] | None) -> bool:
    """Whether the service names the node, or names none and may be placed here."""
    if claim.nodes:
        return node in claim.nodes
    if claim.nodes is None or labels is None:
        return True
    return all(labels.get(key) == value for key, value in claim.selector.items())


def _all_refs(loaded: Loaded) -> Iterator[ObjectRef]:
    yield from loaded.standing.objects
    yield from (document.ref for document in loaded.refused if document.ref)
