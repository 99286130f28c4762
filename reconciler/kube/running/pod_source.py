"""The pods of some services: listed when they are asked for, or followed by a watch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import Unreachable
from reconciler.kube.informer.cache import GATHER_S, InformerCache
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import FLEET_LABEL, SERVICE_LABEL, Manifest, ObjectId, service_of
from reconciler.kube.render.labels import is_benchmark
from reconciler.kube.running.pods import essentials
from reconciler.memo import Memo

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

Pods = Mapping[ObjectRef, tuple[Manifest, ...]]

_POD = SERVED_KINDS["", "Pod"]
_MOST_NAMED = 50  # services in one selector; beyond, all our pods are listed


class PodSource(Protocol):
    def __call__(self, fleet: str, refs: Collection[ObjectRef]) -> Pods:
        """The pods of these services, as `essentials` keeps them, without those that measure.
        Raises ClusterError, Denied: who asks may not see pods."""

    def close(self) -> None: ...


class ListedPods:
    """Lists them each time."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def __call__(self, fleet: str, refs: Collection[ObjectRef]) -> Pods:
        names = sorted({ref.name for ref in refs})
        named = f"{SERVICE_LABEL} in ({','.join(names)})"
        selector = named if len(names) <= _MOST_NAMED else SERVICE_LABEL
        pages = self._api.pages(_POD, selector=selector)
        return _of(refs, (essentials(pod) for page in pages for pod in page.items))

    def close(self) -> None:
        """Nothing is open."""


class FollowedPods:
    """Keeps what is read of all pods of a fleet, by a watch: asking costs no call."""

    def __init__(self, api: ApiServer, changed: Callable[[], None]) -> None:
        """`changed` is called when there is something new to see."""
        self._api = api
        self._changed = changed
        self._cache: InformerCache | None = None
        self._read = Memo[ObjectId, Manifest]()
        self._fleet = ""

    def __call__(self, fleet: str, refs: Collection[ObjectRef]) -> Pods:
        """A pod that has not changed is the same value as last time."""
        cache = self._following(fleet)
        pods = cache.objects()
        for problem in cache.problems.values():
            raise problem
        if pods is None:
            raise Unreachable(f"cluster {self._api.name}: its pods are not listed yet")
        asked = [oid for oid in pods if pods.service(oid) in refs]
        self._read.keep(frozenset(asked))
        return _of(refs, (self._manifest(pods, oid) for oid in asked))

    def _manifest(self, pods: ObjectSet, oid: ObjectId) -> Manifest:
        return self._read.find(oid, (pods.state(oid),), lambda: pods[oid])

    def close(self) -> None:
        if self._cache is not None:
            self._cache.stop()

    def _following(self, fleet: str) -> InformerCache:
        if self._cache is None or fleet != self._fleet:
            self.close()
            self._fleet = fleet
            selector = f"{FLEET_LABEL}={fleet},{SERVICE_LABEL}"
            self._cache = InformerCache(
                *(self._api, [_POD], selector, self._changed), slim=essentials, gather_s=GATHER_S
            )
            self._cache.start()
        return self._cache


def _of(refs: Collection[ObjectRef], pods: Iterable[Manifest]) -> Pods:
    by_ref: defaultdict[ObjectRef, list[Manifest]] = defaultdict(list)
    for pod in pods:
        ref = service_of(pod)
        if ref is not None and ref in refs and not is_benchmark(pod) and _is_of_ours(pod):
            by_ref[ref].append(pod)
    return {ref: tuple(of) for ref, of in by_ref.items()}


def _is_of_ours(pod: Manifest) -> bool:
    """Whether a Deployment or a Job made it: anybody can give a pod our labels."""
    owners = pod["metadata"]["ownerReferences"]
    return any(owner.get("kind") in ("ReplicaSet", "Job") for owner in owners)
