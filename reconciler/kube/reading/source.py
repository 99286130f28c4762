"""A cluster's own objects as the fleet (`-C cluster://NAME`), for people whose applier is Flux or
Argo CD. They own these objects; we only read them.

An API may answer with less than there is: while a CustomResourceDefinition is deleted, just after
it was made anew, while an applier puts things back. So what is missing counts as removed only where
the objects are evidently the same as before: the Fleet has the uid that it had, and so have the
definitions, none of which is going away. Else the last good revision stays, until all that was
known is back or a person says that it is meant to be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from reconciler.api.meta import GROUP, ObjectRef
from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.objects import FLEET_LABEL, OWNED_KINDS, Manifest, ObjectId
from reconciler.kube.reading.documents import content_digest, documents
from reconciler.kube.reading.memory import Known, Memory
from reconciler.source.checkout import YamlFile
from reconciler.workload import digest

if TYPE_CHECKING:
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.kube.watches.watching import Mirror

SCHEME = "cluster://"
_KINDS = ("Fleet", "FleetNode", "Model", "InferenceService")


@dataclass(frozen=True, slots=True)
class ClusterCheckout:
    """One look at the objects. `generations` are theirs, for whoever writes their status; `known`
    is what a later look is held against."""

    cluster: str
    revision: str  # crs:<hash8>, of uids, generations and all that their authors said
    files: tuple[YamlFile, ...]
    generations: Mapping[ObjectRef, int]
    known: Known
    commit: str | None = None

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        """One file an object. None of them can have lost its header: the API checks it."""
        return self.files

    def model_file(self, path: str) -> RepositoryFile:
        _no_files(path)

    def folder(self, path: str) -> tuple[str, ...]:
        _no_files(path)

    def open(self, path: str) -> BinaryIO:
        _no_files(path)

    def commit_of(self, path: str) -> str | None:
        return None


def _no_files(path: str) -> NoReturn:
    raise SourceError(
        f"{path}: a cluster has no files beside its objects; give the Model a source that can be"
        " fetched, such as hf:// or https://"
    )


class ClusterSource:
    """The objects of one fleet in one cluster."""

    def __init__(self, api: ApiServer, memory: Memory) -> None:
        self._api = api
        self._memory = memory
        self._mirror: Mirror | None = None
        self.location = f"{SCHEME}{api.name}"

    def fetch(self) -> ClusterCheckout:
        """What they say now. Raises SourceError: the API does not answer, has no Fleet, or may have
        answered with less than there is."""
        try:
            return self._fetch()
        except ClusterError as error:
            raise SourceError(f"{self.location}: {error}") from error

    def watch(self, changed: Callable[[], None]) -> None:
        """From now on the objects are followed by watches, and `changed` is called when one of them
        changes: a fetch then asks for little."""
        from reconciler.kube.watches.watching import Mirror

        self._mirror = Mirror(self._api, [OWNED_KINDS[GROUP, k] for k in _KINDS], "", changed)
        self._mirror.start()

    def objects(self) -> Mapping[ObjectId, Manifest] | None:
        """All objects of our kinds, as they are watched; None: not known."""
        return self._mirror.objects() if self._mirror else None

    def close(self) -> None:
        if self._mirror is not None:
            self._mirror.stop()

    def remember(self, checkout: ClusterCheckout) -> None:
        """This look was followed: from now on, what it held may not go missing in silence. Raises
        ClusterError."""
        self._memory.write(checkout.known)

    def _fetch(self) -> ClusterCheckout:
        found = self._found()
        fleet = self._fleet(found["Fleet"])
        name = fleet["metadata"]["name"]
        objects = [fleet, *_of_fleet(name, (o for kind in _KINDS[1:] for o in found[kind]))]
        services = frozenset(
            f"{o['metadata']['namespace']}/{o['metadata']['name']}"
            for o in objects
            if o["kind"] == "InferenceService"
        )
        before = self._memory.read(name)
        # Asked after the lists: a definition that began to go away before shows it now.
        known = Known(name, fleet["metadata"]["uid"], self._definitions(), services)
        if why := self._doubt(before, known, fleet):
            raise SourceError(f"{self.location}: {why}")
        files = documents(objects)
        # Generations too: a spec that was changed and changed back is another one to be observed.
        stamps = sorted((o["metadata"]["uid"], o["metadata"].get("generation")) for o in objects)
        revision = f"crs:{digest([content_digest(files), stamps])[:8]}"
        generations = dict(map(_generation, objects))
        return ClusterCheckout(self._api.name, revision, files, generations, known)

    def _found(self) -> Mapping[str, tuple[Manifest, ...]]:
        """By kind. What is watched, and not certain now, is asked for."""
        watched = self._mirror.objects() if self._mirror and self._mirror.is_fresh else None
        if watched is None:
            return {kind: tuple(self._api.list(OWNED_KINDS[GROUP, kind]).items) for kind in _KINDS}
        return {
            kind: tuple(live for oid, live in watched.items() if oid.kind == kind)
            for kind in _KINDS
        }

    def _fleet(self, found: tuple[Manifest, ...]) -> Manifest:
        """The one that gives the fleet its name and policy. One that a reconciler applied from git
        is another's where there are several."""
        if not found:
            raise SourceError(
                f"{self.location}: there is no Fleet object: without it nobody can tell a fleet"
                " that is empty from one that is not there yet; apply one"
            )
        own = [f for f in found if FLEET_LABEL not in (f["metadata"].get("labels") or {})]
        chosen = found if len(found) == 1 else own
        if len(chosen) != 1:
            names = ", ".join(sorted(f["metadata"]["name"] for f in found))
            raise SourceError(f"{self.location}: {names}: a fleet has one Fleet object; keep one")
        return chosen[0]

    def _definitions(self) -> Mapping[str, str]:
        """Plural name -> uid of each definition that is there to stay."""
        uids = {}
        for kind in _KINDS:
            plural = OWNED_KINDS[GROUP, kind].plural
            oid = ObjectId(
                "apiextensions.k8s.io", "CustomResourceDefinition", "", f"{plural}.{GROUP}"
            )
            found = self._api.get(oid)
            if found is not None and not found["metadata"].get("deletionTimestamp"):
                uids[plural] = found["metadata"]["uid"]
        return uids

    def _doubt(self, before: Known | None, now: Known, fleet: Manifest) -> str:
        """Why this may be less than there is; empty: it is all."""
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
            f"the Fleet or its definitions were made anew, and {len(missing)} services are not back"
            f" yet ({shown}): held until they are; if they are meant to be gone, add"
            f" `confirm: [{token}]` to the Fleet"
        )


def _of_fleet(name: str, objects: Iterable[Manifest]) -> list[Manifest]:
    """What does not say that it is another fleet's."""
    return [
        found
        for found in objects
        if (found["metadata"].get("labels") or {}).get(FLEET_LABEL, name) == name
    ]


def _generation(found: Manifest) -> tuple[ObjectRef, int]:
    metadata = found["metadata"]
    ref = ObjectRef(found["kind"], metadata.get("namespace", ""), metadata["name"])
    return ref, metadata.get("generation", 0)
