"""All objects that a revision wants in one cluster, cached as long as their inputs stay the
same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
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
    service_of,
)
from reconciler.kube.render import render
from reconciler.kube.render.declared import concerns, declared, manifest_of
from reconciler.kube.render.placed import PlacedService, placed
from reconciler.loop.desired import Desired


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """`documents` are the fleet's own, `services` the objects of the services with pods, `names`
    the Services of what runs on agent nodes. `renders` are the digests of pods as this version
    makes them, by service; `placed` the services with pods; `incomplete` is why what is missing may
    be a mistake; empty: it is meant to be gone."""

    fleet: str
    documents: ObjectSet
    services: ObjectSet
    names: ObjectSet
    renders: Mapping[ObjectRef, str]
    placed: tuple[PlacedService, ...]
    incomplete: str

    @property
    def objects(self) -> ObjectSet:
        return self.documents.joined(self.services).joined(self.names)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """The objects of one service."""

    objects: Mapping[ObjectId, Packed]
    digest: str  # of its pods; empty: it has none


@dataclass(slots=True)
class ObjectRenderer:
    """`url` is where pods fetch the fleet's repository. `owns_documents`: we apply the fleet's own
    documents, and not another applier. `lasts`: results are kept for as long as a loop runs."""

    cluster: str
    url: str | None = None
    owns_documents: bool = True
    lasts: bool = False
    _last: tuple[Desired, DesiredObjects] | None = None
    _fleet: str = ""  # whose labels the next two carry
    _made: dict[ObjectRef, tuple[PlacedService, _Rendered]] = field(default_factory=dict)
    _documents: dict[ObjectRef, tuple[Resource, Packed]] = field(default_factory=dict)

    def wanted(self, desired: Desired) -> DesiredObjects:
        """Every object that the cluster should have, with the fleet's labels."""
        if self._last is not None and self._last[0] is desired:
            return self._last[1]
        fleet = fleet_name(desired)
        if fleet != self._fleet:
            self._fleet, self._made, self._documents = fleet, {}, {}
        here = placed(desired, self.cluster, self.url)
        self._made = {found.workload.ref: (found, self._rendered(found)) for found in here}
        things = declared(desired, self.cluster) if self.owns_documents else ()
        self._documents = {thing.ref: (thing, self._document(thing)) for thing in things}
        documents = {document_id(ref): found for ref, (_, found) in self._documents.items()}
        objects: dict[ObjectId, Packed] = {}
        renders: dict[ObjectRef, str] = {}
        for ref, (_, rendered) in self._made.items():
            objects |= rendered.objects
            renders |= {ref: rendered.digest} if rendered.digest else {}
        own = {ref.label for ref in self._made}
        services = [s for s in published(desired, self.cluster) if _label(s) not in own]
        names = {id_of(service): self._packed(service) for service in services}
        wanted = DesiredObjects(
            fleet=fleet,
            documents=ObjectSet(documents),
            services=ObjectSet(objects),
            names=ObjectSet(names),
            renders=renders,
            placed=here,
            incomplete=_incomplete(desired, self.cluster) if self.owns_documents else "",
        )
        self._last = (desired, wanted)
        return wanted

    def _document(self, thing: Resource) -> Packed:
        """Cached while its file is unchanged: then it is the same object."""
        before = self._documents.get(thing.ref)
        if before is not None and before[0] is thing:
            return before[1]
        return self._packed(manifest_of(thing))

    def _rendered(self, found: PlacedService) -> _Rendered:
        """Cached while its inputs are unchanged."""
        before = self._made.get(found.workload.ref)
        if before is not None and _is_same(before[0], found):
            return before[1]
        made = render(found)
        return _Rendered({id_of(child): self._packed(child) for child in made}, _digest_of(made))

    def _packed(self, manifest: Manifest) -> Packed:
        made = packed(labelled(manifest, self._fleet))
        return made.smaller() if self.lasts else made


def fleet_name(desired: Desired) -> str:
    """The Fleet's name, the identity of our objects in clusters; empty if none is declared."""
    found = desired.fleet.all(FleetPolicy)
    return found[0].metadata.name if found else ""


def _incomplete(desired: Desired, cluster: str) -> str:
    """A revision without any node of the cluster is not about it."""
    if any(concerns(node, cluster) for node in desired.fleet.all(FleetNode)):
        return ""
    return (
        f"the fleet declares no node of cluster {cluster} any more, so that what is missing may be"
        f" a mistake: remove the services while their FleetNode is declared, or all with"
        f" `reconcile uninstall --cluster {cluster}`"
    )


def _is_same(before: PlacedService, now: PlacedService) -> bool:
    """Objects of unchanged files are identical, in a new revision too."""
    return (
        before.service is now.service
        and before.node is now.node
        and before.policy == now.policy
        and before.repository == now.repository
        and (before.workload is now.workload or before.workload == now.workload)
        and all(before.models.get(name) is model for name, model in now.models.items())
    )


def _digest_of(children: Iterable[Manifest]) -> str:
    """The digest of the serving pods; a Job that fetches has one of its own."""
    for manifest in children:
        said = manifest["metadata"].get("annotations") or {}
        if manifest["kind"] == "Deployment" and RENDER_DIGEST_ANNOTATION in said:
            return str(said[RENDER_DIGEST_ANNOTATION])
    return ""


def _label(manifest: Manifest) -> str:
    ref = service_of(manifest)
    return ref.label if ref else ""
