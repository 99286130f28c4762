"""All objects that a revision wants in one cluster, cached as long as their inputs stay the
same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.isolated import Crash, attempt
from reconciler.api.meta import ObjectRef, Resource
from reconciler.kube.endpoints.slices import published
from reconciler.kube.inventory import labelled
from reconciler.kube.object_set import ObjectSet, Packed, packed
from reconciler.kube.objects import (
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    ObjectId,
    document_id,
    id_of,
    kind_of,
    service_of,
)
from reconciler.kube.render import render
from reconciler.kube.render.declared import concerns, declared, manifest_of
from reconciler.kube.render.placed import PlacedService, placed
from reconciler.loop.desired import Desired
from reconciler.memo import Memo, Same


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """`documents` are the fleet's own, `services` the objects of the services with pods, `names`
    the Services of what runs on agent nodes. `renders` are the digests of pods as this version
    makes them, by service; `placed` the services with pods; `incomplete` is why what is missing may
    be a mistake; empty: it is meant to be gone. `optional` are objects, each with its
    service, of which a cluster need not have the kind, `left_out` those that it has none for.
    `unrendered` are services and documents with which this program fails, with the reason: their
    objects stay as they are."""

    fleet: str
    documents: ObjectSet
    services: ObjectSet
    names: ObjectSet
    renders: Mapping[ObjectRef, str]
    placed: tuple[PlacedService, ...]
    incomplete: str
    optional: Mapping[ObjectId, ObjectRef] = field(default_factory=dict)
    left_out: Mapping[ObjectId, ObjectRef] = field(default_factory=dict)
    unrendered: Mapping[ObjectRef, str] = field(default_factory=dict)

    def where(self, lacking: Collection[tuple[str, str]]) -> DesiredObjects:
        """What of it a cluster can have that lacks these kinds, as (group, kind)."""
        out = {oid: r for oid, r in self.optional.items() if (oid.group, oid.kind) in lacking}
        if not out:
            return self
        return replace(self, services=self.services.changed(dict.fromkeys(out)), left_out=out)

    @property
    def objects(self) -> ObjectSet:
        return self.documents.joined(self.services).joined(self.names)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """The objects of one service."""

    objects: Mapping[ObjectId, Packed]
    digest: str  # of its pods; empty: it has none
    optional: Mapping[ObjectId, ObjectRef]


@dataclass(slots=True)
class ObjectRenderer:
    """`url` is where pods fetch the fleet's repository. `owns_documents`: we apply the fleet's own
    documents, and not another applier. `lasts`: results are kept for as long as a loop runs."""

    cluster: str
    url: str | None = None
    owns_documents: bool = True
    lasts: bool = False
    _last: tuple[Desired, DesiredObjects] | None = None
    _rendered: Memo[ObjectRef, _Rendered] = field(default_factory=Memo)
    _documents: Memo[ObjectRef, Packed] = field(default_factory=Memo)

    def wanted(self, desired: Desired) -> DesiredObjects:
        """Every object that the cluster should have, with the fleet's labels."""
        if self._last is not None and self._last[0] is desired:
            return self._last[1]
        fleet = fleet_name(desired)
        unrendered: dict[ObjectRef, str] = {}
        documents: dict[ObjectId, Packed] = {}
        things = declared(desired, self.cluster) if self.owns_documents else ()
        for thing in things:
            document = attempt(partial(self._document, desired, thing))
            if isinstance(document, Crash):
                unrendered[thing.ref] = document.message
            else:
                documents[document_id(thing.ref)] = document
        self._documents.keep({thing.ref for thing in things})
        objects: dict[ObjectId, Packed] = {}
        optional: dict[ObjectId, ObjectRef] = {}
        renders: dict[ObjectRef, str] = {}
        here: list[PlacedService] = []
        for placed_service in placed(desired, self.cluster, self.url):
            rendered = attempt(partial(self._render, fleet, placed_service))
            if isinstance(rendered, Crash):
                unrendered[placed_service.workload.ref] = rendered.message
                continue
            here.append(placed_service)
            objects |= rendered.objects
            optional |= rendered.optional
            renders |= {placed_service.workload.ref: rendered.digest} if rendered.digest else {}
        refs = {placed_service.workload.ref for placed_service in here}
        self._rendered.keep(refs)
        own = {ref.label for ref in refs | unrendered.keys()}
        services = [s for s in published(desired, self.cluster) if _label(s) not in own]
        names = {id_of(service): self._packed(fleet, service) for service in services}
        wanted = DesiredObjects(
            fleet=fleet,
            documents=ObjectSet(documents),
            services=ObjectSet(objects),
            names=ObjectSet(names),
            renders=renders,
            placed=tuple(here),
            incomplete=_incomplete(desired, self.cluster) if self.owns_documents else "",
            optional=optional,
            unrendered=unrendered,
        )
        self._last = (desired, wanted)
        return wanted

    def _document(self, desired: Desired, thing: Resource) -> Packed:
        """Cached while its file is unchanged: then it is the same object."""
        fleet, written = fleet_name(desired), desired.fleet.written.get(thing.ref)
        make = partial(self._packed_document, fleet, thing, written)
        return self._documents.find(thing.ref, (fleet, Same(thing)), make)

    def _packed_document(
        self, fleet: str, thing: Resource, written: Mapping[str, Any] | None
    ) -> Packed:
        return self._packed(fleet, manifest_of(thing, written))

    def _render(self, fleet: str, service: PlacedService) -> _Rendered:
        """Cached while its inputs are unchanged. Objects of unchanged files are identical, in a new
        revision too."""

        def rendered() -> _Rendered:
            made = render(service)
            objects = {id_of(child): self._packed(fleet, child) for child in made}
            ref = service.workload.ref
            optional = {oid: ref for oid in objects if kind_of(oid).project}
            return _Rendered(objects, _digest_of(made), optional)

        documents = (service.service, service.node, *service.models.values())
        given = (fleet, service.policy, service.repository, service.workload, *map(Same, documents))
        return self._rendered.find(service.workload.ref, given, rendered)

    def _packed(self, fleet: str, manifest: Manifest) -> Packed:
        made = packed(labelled(manifest, fleet))
        return made.smaller() if self.lasts else made


def fleet_name(desired: Desired) -> str:
    """The Fleet's name, the identity of our objects in clusters; empty if none is declared."""
    policies = desired.fleet.all(FleetPolicy)
    return policies[0].metadata.name if policies else ""


def _incomplete(desired: Desired, cluster: str) -> str:
    """A revision without any node of the cluster is not about it."""
    if any(concerns(node, cluster) for node in desired.fleet.all(FleetNode)):
        return ""
    return (
        f"the fleet declares no node of cluster {cluster} any more, so that what is missing may be"
        f" a mistake: remove the services while their FleetNode is declared, or all with"
        f" `reconcile uninstall --cluster {cluster}`"
    )


def _digest_of(children: Iterable[Manifest]) -> str:
    """The digest of the serving pods; a Job that fetches has one of its own."""
    for manifest in children:
        annotations = manifest["metadata"].get("annotations") or {}
        if manifest["kind"] == "Deployment" and RENDER_DIGEST_ANNOTATION in annotations:
            return str(annotations[RENDER_DIGEST_ANNOTATION])
    return ""


def _label(manifest: Manifest) -> str:
    ref = service_of(manifest)
    return ref.label if ref else ""
