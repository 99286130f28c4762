"""Looking at one cluster: once, by lists, or all the time, by watches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from reconciler.api.meta import GROUP
from reconciler.kube.client.errors import ClusterError, NotFound, Throttled, Unreachable
from reconciler.kube.client.pace import Pace
from reconciler.kube.informer.cache import GATHER_S, InformerCache
from reconciler.kube.informer.read_your_writes import ReadYourWritesApi
from reconciler.kube.informer.reflector import Freshness
from reconciler.kube.inventory import is_ours, parent_id, selector, set_id
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import (
    FLEET_LABEL,
    OWNED_KINDS,
    PART_OF_LABEL,
    Manifest,
    ObjectId,
    OwnedKind,
    id_of,
)
from reconciler.memo import Memo

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

READERS = 8  # at once
FIRST_S = 30.0  # for the first lists of a cache

# Those that a fleet does not make itself: Namespaces and definitions are an installation's.
KINDS = tuple(row for row in OWNED_KINDS.values() if row.namespaced or row.group == GROUP)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look: the objects that carry the fleet's labels, and the parent of its set. `missing` are
    kinds of our own that are not installed; `documents` objects of these that others applied, where
    they are the fleet; `slices` the EndpointSlices of its Services, by any controller. `lacking`
    are other projects' kinds that are not installed, as (group, kind)."""

    objects: ObjectSet
    parent: Manifest | None
    missing: tuple[str, ...] = ()
    documents: Mapping[ObjectId, Manifest] = field(default_factory=dict)
    slices: Mapping[ObjectId, Manifest] = field(default_factory=dict)
    lacking: frozenset[tuple[str, str]] = frozenset()


Documents = Callable[[], Mapping[ObjectId, Manifest] | None]


class ClusterObserver(Protocol):
    def __call__(self, fleet: str) -> Snapshot:
        """What a fleet has there now. Raises ClusterError: nothing may be concluded."""

    def close(self) -> None: ...


class ListingObserver:
    """Lists every kind, each time."""

    def __init__(self, api: ApiServer, others: bool = False) -> None:
        """`others`: also documents that another program applied."""
        self._api = api
        self._others = others

    def __call__(self, fleet: str) -> Snapshot:
        absent: list[OwnedKind] = []
        pace = Pace(READERS, FIRST_S)

        def listed(kind: OwnedKind) -> list[Manifest]:
            try:
                chosen = "" if self._others and kind.group == GROUP else selector(fleet)
                manifests = pace.run(lambda: self._api.list(kind, selector=chosen))
                return list(manifests.items)
            except NotFound:
                absent.append(kind)
                return []

        with ThreadPoolExecutor(READERS, "look") as pool:
            parent = pool.submit(self._api.get, parent_id(fleet))
            manifests = [manifest for each in pool.map(listed, KINDS) for manifest in each]
            objects = ObjectSet({id_of(manifest): manifest for manifest in manifests})
            ours = _of(objects, fleet, Memo())
            others = {oid: o for oid, o in objects.items() if oid.group == GROUP}
            given = (_own(absent), others, _slices(objects), _others(absent))
            return Snapshot(ours, parent.result(), *given)

    def close(self) -> None:
        """Nothing is open."""


class WatchingObserver:
    """Keeps a copy by watches; `changed` is called when there is something new to see."""

    def __init__(
        self,
        api: ApiServer,
        changed: Callable[[], None],
        others: bool = False,
        documents: Documents | None = None,
    ) -> None:
        """`others`: also documents that another program applied; `documents` has them where
        they are watched already."""
        self._api = api
        self._noted = api if isinstance(api, ReadYourWritesApi) else None
        self._others = others
        self._watched = documents
        self._changed = changed
        self._cache: InformerCache | None = None
        self._members = Memo[ObjectId, bool]()
        self._fleet = ""
        self._news = threading.Condition()

    def __call__(self, fleet: str) -> Snapshot:
        cache = self._following(fleet)
        reached = cache.reached()
        objects = self._first(cache)
        if objects is None or not cache.is_fresh:
            raise _why(cache, self._api.name)
        absent = [kind for kind, f in cache.freshness.items() if f is Freshness.ABSENT]
        if self._noted is not None:
            objects = self._noted.with_notes(objects, reached)
        ours, parent = _of(objects, fleet, self._members), objects.get(parent_id(fleet))
        given = (_own(absent), self._documents(), _slices(objects), _others(absent))
        return Snapshot(ours, parent, *given)

    def close(self) -> None:
        if self._cache is not None:
            self._cache.stop()

    def _documents(self) -> Mapping[ObjectId, Manifest]:
        if not self._others:
            return {}
        if self._watched is not None:
            return self._watched() or {}
        lists = (self._api.list(kind).items for kind in KINDS if kind.group == GROUP)
        return {id_of(o): o for each in lists for o in each}

    def _following(self, fleet: str) -> InformerCache:
        if self._cache is None or fleet != self._fleet:
            self.close()
            self._fleet, self._members = fleet, Memo()
            chosen = f"{FLEET_LABEL}={fleet}"
            self._cache = InformerCache(self._api, KINDS, chosen, self._notify, gather_s=GATHER_S)
            self._cache.start()
        return self._cache

    def _notify(self) -> None:
        with self._news:
            self._news.notify_all()
        self._changed()

    def _first(self, cache: InformerCache) -> ObjectSet | None:
        """Waits for the first lists, until they are here or cannot be had."""
        deadline = monotonic() + FIRST_S
        with self._news:
            while (objects := cache.objects()) is None and not _is_lost(cache):
                left_s = deadline - monotonic()
                if left_s <= 0:
                    break
                self._news.wait(min(0.5, left_s))
            return objects


def _of(objects: ObjectSet, fleet: str, known: Memo[ObjectId, bool]) -> ObjectSet:
    """The members of the fleet's set, without its parent."""
    part_of = set_id(fleet)

    def is_member(oid: ObjectId) -> bool:
        live = objects[oid]
        labels = live["metadata"].get("labels") or {}
        return labels.get(PART_OF_LABEL) == part_of and is_ours(live, fleet)

    are_members = known.find_all(objects.declared_states(), is_member)
    return objects.only(oid for oid, is_one in are_members.items() if is_one)


def _own(absent: Iterable[OwnedKind]) -> tuple[str, ...]:
    return tuple(sorted(kind.kind for kind in absent if kind.group == GROUP))


def _others(absent: Iterable[OwnedKind]) -> frozenset[tuple[str, str]]:
    return frozenset((kind.group, kind.kind) for kind in absent if kind.project)


def _slices(objects: ObjectSet) -> ObjectSet:
    return objects.only(objects.of_kind("EndpointSlice"))


def _is_lost(cache: InformerCache) -> bool:
    """Whether it cannot be had now. A server that asks for a pause will answer."""
    return any(not isinstance(problem, Throttled) for problem in cache.problems.values())


def _why(cache: InformerCache, name: str) -> ClusterError:
    """What to say of a copy that is not current."""
    problems: Iterable[ClusterError] = cache.problems.values()
    for problem in problems:
        return problem
    return Unreachable(f"cluster {name}: not all kinds could be listed yet")
