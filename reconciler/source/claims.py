"""Which documents are a node's business, read as well as a document with errors allows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.fleet import Fleet

if TYPE_CHECKING:
    from reconciler.source.load import Loaded


@dataclass(frozen=True, slots=True)
class _Claim:
    """Where a service says that it runs, and its models. `nodes` None: that cannot be read."""

    nodes: tuple[str, ...] | None
    selector: Mapping[str, str]
    models: tuple[str, ...]


def slice_of(node: str, loaded: Loaded, fleet: Fleet) -> frozenset[ObjectRef]:
    """What a node is to look at: its FleetNode, the services that are placed on it or could be,
    with their Models, and the Fleet's policy. `fleet` is what is in force, with stand-ins."""
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


def _claims(loaded: Loaded) -> Mapping[ObjectRef, list[_Claim]]:
    """Every claim of a service, or of what is of no kind that we know, under its name."""
    found: defaultdict[ObjectRef, list[_Claim]] = defaultdict(list)
    valid: Iterable[object] = loaded.standing.objects.values()
    for thing in (*valid, *(item.resource for item in loaded.twice)):
        if isinstance(thing, InferenceService):
            placement = thing.spec.placement
            claim = _Claim(placement.nodes, placement.node_selector, thing.model_names)
            found[thing.ref].append(claim)
    for document in loaded.refused:
        ref = document.ref
        if ref and ref.kind == "InferenceService":
            found[ref].append(_claim(document.content))
        elif ref and ref.kind not in _OTHERS and (claim := _claim(document.content)).nodes:
            found[ref].append(claim)  # of a kind of tomorrow, which names nodes as services do
    return found


_OTHERS = ("Fleet", "FleetNode", "Model")


def _claim(content: Mapping[Any, Any]) -> _Claim:
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return _Claim(None, {}, ())
    placement = spec.get("placement", {})
    placement = placement if isinstance(placement, dict) else {"nodes": None}
    nodes, selector = placement.get("nodes", []), placement.get("nodeSelector", {})
    is_read = isinstance(nodes, list) and isinstance(selector, dict)
    return _Claim(
        tuple(name for name in nodes if isinstance(name, str)) if is_read else None,
        {str(key): str(value) for key, value in selector.items()} if is_read else {},
        tuple(_models(spec)),
    )


def _models(spec: Mapping[Any, Any]) -> Iterator[str]:
    items = spec.get("models")
    names = (
        [item.get("name") for item in items or () if isinstance(item, dict)]
        if (isinstance(items, list))
        else []
    )
    yield from (name for name in (spec.get("modelRef"), *names) if isinstance(name, str))


def _is_for(claim: _Claim, node: str, labels: Mapping[str, str] | None) -> bool:
    """Whether the node is stated, or none is and this one may be meant."""
    if claim.nodes:
        return node in claim.nodes
    if claim.nodes is None or labels is None:
        return True
    return all(labels.get(key) == value for key, value in claim.selector.items())


def _all_refs(loaded: Loaded) -> Iterator[ObjectRef]:
    yield from loaded.standing.objects
    yield from (document.ref for document in loaded.refused if document.ref)
