"""A cluster's API as the source of one node's desired state: its objects as a checkout.

The objects are mirrored by watches, so that a fetch makes no request. If anything is uncertain (no
response, no list, a missing object), the source counts as unavailable: services keep running.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from agent.cluster.following import Followed, Objects, OwnerUids, alone, led, undecided
from agent.cluster.saved import save, saved
from reconciler.api.errors import SourceError
from reconciler.api.nodestate import OBJECTS_MARK
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.crsource.checkout import ObjectsCheckout
from reconciler.kube.crsource.documents import content_digest, documents
from reconciler.kube.objects import Manifest, ObjectId, OwnedKind, id_of
from reconciler.source.checkout import Historied

_FIRST_ANSWER_S = 10.0
_LOOK_S = 0.05
_MOST_REVISIONS = 3
_log = logging.getLogger(__name__)


class ObjectCache(Protocol):
    """A current copy of a cluster's objects (reconciler.kube.informer.cache.InformerCache)."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def objects(self) -> Objects | None: ...
    @property
    def is_fresh(self) -> bool: ...
    @property
    def problems(self) -> Mapping[OwnedKind, ClusterError]: ...


class Follows(Protocol):
    """Decides what to follow from the current objects and what was followed last."""

    def __call__(self, seen: Objects, last: Followed | None) -> Followed:
        """Raises SourceError or ClusterError if the objects cannot be followed now."""


class FollowedCluster(Historied):
    """It has the interface of a source with history, of which it keeps only the last applied
    state, on disk."""

    def __init__(self, location: str, cache: ObjectCache, follows: Follows, path: Path) -> None:
        """`path` is where the applied state is kept."""
        self.location = location
        self._cache = cache
        self._follows = follows
        self._path = path
        self._last = saved(path, location)
        self._started = False
        self._recent: dict[str, Followed] = {}  # by revision: candidates for the applied one
        self._bases: dict[str, str] = {}  # a revision under the cluster's name -> its digest
        if self._last is not None and "+" not in self._last.revision:
            self._bases[self._last.revision] = _digest(self._last)

    def fetch(self) -> ObjectsCheckout:
        """The current state to follow. Raises SourceError: services keep running as they are."""
        seen = self._seen()
        try:
            followed = self._follows(seen, self._last)
        except ClusterError as error:
            raise SourceError(str(error)) from error
        files = documents(followed.objects.values())
        revision = self._revision(followed.revision, content_digest(files))
        self._last = Followed(revision, followed.objects, followed.owner_uids)
        self._recent[revision] = self._last
        while len(self._recent) > _MOST_REVISIONS:
            del self._recent[next(iter(self._recent))]
        return ObjectsCheckout(revision, files)

    def at(self, revision: str) -> ObjectsCheckout:
        """The applied state. Raises SourceError."""
        known = saved(self._path, self.location)
        if known is None or known.revision != revision:
            raise SourceError(f"{self._path}: does not hold {revision}, which was applied last")
        return ObjectsCheckout(revision, documents(known.objects.values()))

    def bring(self, revision: str) -> None:
        """What the cluster was like once, it cannot say. Raises SourceError."""
        raise SourceError(f"{self.location}: has no {revision} any more")

    def keep(self, revision: str, holder: str) -> None:
        """Keep a fetched state as the applied one. Raises SourceError."""
        if revision in self._recent:
            save(self._path, self.location, self._recent[revision])

    def is_ancestor(self, older: str, newer: str) -> bool:
        """The current objects are always newer than earlier ones: the API server has no
        branches."""
        return True

    def close(self) -> None:
        if self._started:
            self._cache.stop()

    def _seen(self) -> Objects:
        """All current objects. Waits briefly for the first list only."""
        if not self._started:
            self._started = True
            self._cache.start()
            ends = time.monotonic() + _FIRST_ANSWER_S
            while self._cache.objects() is None and time.monotonic() < ends:
                time.sleep(_LOOK_S)
        fresh, seen = self._cache.is_fresh, self._cache.objects()
        if seen is None or not fresh:
            problems = list(self._cache.problems.values())
            raise SourceError(str(problems[0]) if problems else f"{self.location} does not answer")
        return seen

    def _revision(self, base: str, digest: str) -> str:
        """The cluster's name for the state; another one if the same name would mean different
        objects."""
        if not base:
            return f"dir:{digest[:8]}"
        if self._bases.setdefault(base, digest) == digest:
            return base
        return f"{base}{OBJECTS_MARK}{digest[:8]}"


def follow_reconciler(node: str, namespace: str | None) -> Follows:
    """Follow FleetNode.status.desired."""
    return lambda seen, last: led(node, seen, last, namespace)


class StandAlone:
    """Follow the services whose Models require metal; `own` replaces a missing FleetNode, `look`
    reads the surroundings of objects."""

    def __init__(
        self,
        own: Manifest,
        read_owner_uids: Callable[[Iterable[ObjectId]], Mapping[ObjectId, OwnerUids]],
    ) -> None:
        self._own = own
        self._read_owner_uids = read_owner_uids
        self._known: dict[ObjectId, tuple[str, OwnerUids]] = {}

    def __call__(self, seen: Objects, last: Followed | None) -> Followed:
        """Reads the surroundings only if services were added or removed: most changes are
        a status of some object."""
        services = {
            oid: str(live["metadata"].get("uid", ""))
            for oid, live in seen.items()
            if oid.kind == "InferenceService"
        }
        gone = undecided(seen, last)
        new = {oid for oid, uid in services.items() if self._known.get(oid, ("",))[0] != uid}
        unproven = {oid for oid in services if oid in self._known and not _known(self._known[oid])}
        uids = self._read_owner_uids({*gone, *new, *unproven}) if gone or new or unproven else {}
        for oid, uid in services.items():
            if oid in uids:
                self._known[oid] = uid, uids[oid]
        owner_uids = {oid: g for oid, (_, g) in self._known.items() if oid in services} | {
            oid: uids[oid] for oid in gone if oid in uids
        }
        self._known = {oid: known for oid, known in self._known.items() if oid in services}
        own = seen.get(id_of(self._own), self._own)
        return alone(own, seen, last, owner_uids)


def _known(entry: tuple[str, OwnerUids]) -> bool:
    return None not in (entry[1].definition, entry[1].namespace)


def _digest(followed: Followed) -> str:
    return content_digest(documents(followed.objects.values()))
