"""Which objects of another controller may be adopted: those that it made for services of the fleet.

Only names that the fleet wants are looked at, and of these only what is not the fleet's yet. While
that controller runs nothing is adopted: it would write the same objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.kube.adoption.controllers import applier_of, signs
from reconciler.kube.diff.standing import (
    as_document,
    as_ours,
    claims_of,
    standing_claim,
    written_spec,
)
from reconciler.kube.inventory import fleet_of, labelled
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import (
    AGENT_MANAGER,
    MANAGER,
    OWNED_KINDS,
    SPEED_MANAGER,
    Manifest,
    ObjectId,
    document_id,
)
from reconciler.llmkube.written import is_owned_by, owner_of

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.informer.observer import Snapshot
    from reconciler.kube.informer.strangers import Strangers
    from reconciler.kube.render.rendering import DesiredObjects

_DOCUMENTS = ("InferenceService", "Model")
_OWN = (MANAGER, AGENT_MANAGER, SPEED_MANAGER)
_RUNS = (OWNED_KINDS["apps", "Deployment"], SERVED_KINDS["", "Pod"])  # where a controller is seen


@dataclass(frozen=True, slots=True)
class Adoptable:
    """`objects` are those that may be adopted, as they are once they are ours; `left` those that
    may not now, with the reason."""

    objects: Mapping[ObjectId, Manifest] = field(default_factory=lambda: MappingProxyType({}))
    left: Mapping[ObjectId, str] = field(default_factory=lambda: MappingProxyType({}))


def adoptable(
    api: ApiServer, wanted: DesiredObjects, snapshot: Snapshot, strangers: Strangers
) -> Adoptable:
    """Raises ClusterError."""
    objects = {
        **dict(_documents(wanted, strangers)),
        **dict(_made(wanted, snapshot, strangers)),
    }
    if not objects:
        return Adoptable()
    if why := _still_runs(api):
        return Adoptable(left=dict.fromkeys(objects, why))
    return Adoptable(objects)


def _documents(wanted: DesiredObjects, strangers: Strangers) -> Iterator[tuple[ObjectId, Manifest]]:
    """Documents whose status another controller wrote, unless Flux or Argo CD apply them: whose
    they are they say."""
    for oid, live in strangers.under(wanted.documents).items():
        if oid.kind in _DOCUMENTS and _is_free(live) and _was_served(live):
            yield oid, as_document(live, wanted.documents[oid])


def _is_free(live: Manifest) -> bool:
    return fleet_of(live) is None and not applier_of(live)


def _was_served(live: Manifest) -> bool:
    rows = live["metadata"].get("managedFields") or ()
    return any(r.get("subresource") == "status" and r.get("manager") not in _OWN for r in rows)


def _made(
    wanted: DesiredObjects, snapshot: Snapshot, strangers: Strangers
) -> Iterator[tuple[ObjectId, Manifest]]:
    """What it made for services."""
    for oid, live in strangers.under(wanted.services).items():
        ref, owner = wanted.services.service(oid), owner_of(live)
        if ref is None or owner is None or owner.name != ref.name or fleet_of(live) is not None:
            continue
        document = _document(document_id(ref), snapshot, strangers)
        if document is not None and is_owned_by(live, document):
            yield oid, as_ours(live, wanted.services[oid], owner.uid)
            yield from _claims(wanted.fleet, ref, live, document, strangers)


def _claims(
    fleet: str, ref: ObjectRef, deployment: Manifest, document: Manifest, strangers: Strangers
) -> Iterator[tuple[ObjectId, Manifest]]:
    """The claims of that service alone that its pods mount."""
    names = claims_of(deployment) if deployment["kind"] == "Deployment" else ()
    for oid, live in strangers.under(names).items():
        if is_owned_by(live, document) and fleet_of(live) is None:
            claim = standing_claim(oid, written_spec(live, document["metadata"]["uid"]))
            want = labelled(claim, fleet, ref.name)
            yield oid, as_ours(live, want, document["metadata"]["uid"])


def _document(oid: ObjectId, snapshot: Snapshot, strangers: Strangers) -> Manifest | None:
    known = snapshot.objects.get(oid) or snapshot.documents.get(oid)
    return known or strangers.under((oid,)).get(oid)


def _still_runs(api: ApiServer) -> str:
    """What is seen of the other controller, and how to end it; empty: nothing."""
    now = time.time()
    for kind in _RUNS:
        for live in api.list(kind).items:
            for sign in signs(live, now):
                return str(sign)
    return ""


def with_adopted(objects: ObjectSet, adoption: Adoptable) -> ObjectSet:
    """The fleet's objects, and those that it adopts."""
    return objects.joined(ObjectSet.of(adoption.objects)) if adoption.objects else objects
