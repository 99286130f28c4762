"""A cluster's own objects as the fleet (`-C cluster://NAME`), for users of Flux or Argo CD, which
own these objects; we only read them.

An API may return fewer objects than there should be: while a CustomResourceDefinition is deleted,
just after it was recreated, while an applier restores objects. So a missing object counts as
removed only if the store is evidently the same: the Fleet has the same uid, and so have the
definitions, none of which is being deleted. Otherwise the last good revision stays, until
everything known is back or a user confirms that it should be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.digest import digest
from reconciler.api.errors import SourceError
from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP, ObjectRef
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.crsource.checkout import ObjectsCheckout
from reconciler.kube.crsource.documents import content_digest, object_file
from reconciler.kube.crsource.identity import FleetIdentity, FleetMemory
from reconciler.kube.object_set import ObjectSet, packed
from reconciler.kube.objects import FLEET_LABEL, OWNED_KINDS, Manifest, ObjectId, id_of
from reconciler.source.checkout import ObjectFile

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.informer.cache import InformerCache

SCHEME = "cluster://"
_KINDS = tuple(KINDS)


@dataclass(frozen=True, slots=True)
class ClusterCheckout(ObjectsCheckout):
    """A fleet's objects. Its revision is crs:<hash8>, of uids, generations and everything that
    their authors wrote. `generations` are for the writer of their status; `known` is what later
    fetches are compared with."""

    cluster: str
    generations: Mapping[ObjectRef, int]
    known: FleetIdentity


class ClusterSource:
    """The objects of one fleet in one cluster."""

    def __init__(self, api: ApiServer, memory: FleetMemory) -> None:
        self._api = api
        self._memory = memory
        self._cache: InformerCache | None = None
        self.location = f"{SCHEME}{api.name}"

    def fetch(self) -> ClusterCheckout:
        """The current objects. Raises SourceError: the API does not respond, has no Fleet, or may
        have returned fewer objects than there are."""
        try:
            return self._fetch()
        except ClusterError as error:
            raise SourceError(f"{self.location}: {error}") from error

    def watch(self, changed: Callable[[], None]) -> None:
        """From now on follow the objects by watches, and call `changed` when one of them changes: a
        fetch is cheap then."""
        from reconciler.kube.informer.cache import InformerCache

        self._cache = InformerCache(self._api, [OWNED_KINDS[GROUP, k] for k in _KINDS], "", changed)
        self._cache.start()

    def objects(self) -> Mapping[ObjectId, Manifest] | None:
        """All objects of our kinds, from the watches; None: not known."""
        return self._cache.objects() if self._cache else None

    def close(self) -> None:
        if self._cache is not None:
            self._cache.stop()

    def remember(self, checkout: ClusterCheckout) -> None:
        """The checkout was followed: from now on its objects may not go missing silently. Raises
        ClusterError."""
        self._memory.write(checkout.known)

    def _fetch(self) -> ClusterCheckout:
        objects = self._read_objects()
        fleet = self._fleet([objects[oid] for oid in objects.of_kind("Fleet")])
        name = fleet["metadata"]["name"]
        members = [m for oid in objects if (m := _member(objects, oid, name)) is not None]
        services = frozenset(
            f"{ref.namespace}/{ref.name}"
            for ref in (m.file.ref for m in members)
            if ref.kind == "InferenceService"
        )
        before = self._memory.read(name)
        # Read after the lists: a definition whose deletion began before shows it now.
        known = FleetIdentity(name, fleet["metadata"]["uid"], self._definitions(), services)
        if why := self._doubt(before, known, fleet):
            raise SourceError(f"{self.location}: {why}")
        files = tuple(sorted((m.file for m in members), key=lambda file: file.path))
        # Generations too: a spec that was changed and changed back has to be observed again.
        stamps = sorted((m.uid, m.generation) for m in members)
        revision = f"crs:{digest([content_digest(files), stamps])[:8]}"
        generations = {m.file.ref: m.generation or 0 for m in members}
        return ClusterCheckout(revision, files, self._api.name, generations, known)

    def _read_objects(self) -> ObjectSet:
        """Objects from the watches where they are current, else from the API."""
        watched = self._cache.objects() if self._cache and self._cache.is_fresh else None
        if watched is not None:
            return watched
        pages = (p for kind in _KINDS for p in self._api.pages(OWNED_KINDS[GROUP, kind]))
        return ObjectSet({id_of(o): packed(o).smaller() for page in pages for o in page.items})

    def _fleet(self, objects: list[Manifest]) -> Manifest:
        """The Fleet with the name and policy. If there are several, one applied by a reconciler
        from git belongs to that."""
        if not objects:
            raise SourceError(
                f"{self.location}: there is no Fleet object: without it nobody can tell a fleet"
                " that is empty from one that is not there yet; apply one"
            )
        own = [f for f in objects if FLEET_LABEL not in (f["metadata"].get("labels") or {})]
        chosen = objects if len(objects) == 1 else own
        if len(chosen) != 1:
            names = ", ".join(sorted(f["metadata"]["name"] for f in objects))
            raise SourceError(f"{self.location}: {names}: a fleet has one Fleet object; keep one")
        return chosen[0]

    def _definitions(self) -> Mapping[str, str]:
        """Plural name -> uid of each definition that is not being deleted."""
        uids = {}
        for kind in _KINDS:
            plural = OWNED_KINDS[GROUP, kind].plural
            oid = ObjectId(
                "apiextensions.k8s.io", "CustomResourceDefinition", "", f"{plural}.{GROUP}"
            )
            definition = self._api.get(oid)
            if definition is not None and not definition["metadata"].get("deletionTimestamp"):
                uids[plural] = definition["metadata"]["uid"]
        return uids

    def _doubt(self, before: FleetIdentity | None, now: FleetIdentity, fleet: Manifest) -> str:
        """Why the objects may be incomplete; empty if they are complete."""
        lacking = [k for k in _KINDS if OWNED_KINDS[GROUP, k].plural not in now.definitions]
        if lacking:
            return (
                f"the definitions of {', '.join(lacking)} are missing or going away: held; put"
                " them back with `reconcile install`"
            )
        missing = before.services - now.services if before else frozenset()
        if before is None or not missing or before.is_same_store(now):
            return ""
        token = f"gone-{digest(sorted([now.fleet_uid, *missing]))[:8]}"
        confirmed = (fleet.get("spec") or {}).get("confirm") or ()
        if token in confirmed:
            return ""
        shown = ", ".join(sorted(missing)[:5]) + (", ..." if len(missing) > 5 else "")
        return (
            f"the Fleet or its definitions were recreated, and {len(missing)} services are not back"
            f" yet ({shown}): held until they are; if they are meant to be gone, add"
            f" `confirm: [{token}]` to the Fleet"
        )


class _Member(NamedTuple):
    """An object of the fleet."""

    file: ObjectFile
    uid: str
    generation: int | None


def _member(objects: ObjectSet, oid: ObjectId, fleet: str) -> _Member | None:
    """One object, decoded once; None if it is of another fleet."""
    live = objects[oid]
    metadata = live["metadata"]
    is_other = (
        oid.name != fleet
        if oid.kind == "Fleet"
        else (metadata.get("labels") or {}).get(FLEET_LABEL, fleet) != fleet
    )
    if is_other:
        return None
    file = object_file(live, objects.later(oid))
    return _Member(file, metadata["uid"], metadata.get("generation"))
