"""A copy of the objects that carry our labels, kept current by watches.

One thread a kind: list, then watch from there; a break goes on from the last resourceVersion, and
only a server that has forgotten that one (410) is listed again. What a cluster does not say is not
known: an outage, or a kind that is no longer served, never empties the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.kube.client.errors import ClusterError
from reconciler.kube.client.stream import IDLE_S
from reconciler.kube.informer.reflector import PROVEN_S, Freshness, Reflector, WatchedKind
from reconciler.kube.object_set import ObjectSet, Packed
from reconciler.kube.objects import Manifest, ObjectId, OwnedKind

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

COALESCE_S = 0.05
GATHER_S = 0.2  # for who follows many objects that move together
FIRST_PAUSE_S = 0.5  # the most that is waited before the second attempt; it doubles
LOOK_AGAIN_S = 10.0  # for a kind that is not installed

_CURRENT = (Freshness.FRESH, Freshness.ABSENT)


def whole(item: dict[str, Any]) -> Manifest:
    """Keep all of an object."""
    return item


class InformerCache:
    """The objects of some kinds that a label selector finds."""

    def __init__(
        self,
        api: ApiServer,
        kinds: Iterable[OwnedKind],
        selector: str,
        changed: Callable[[], None],
        *,
        slim: Callable[[dict[str, Any]], Manifest] = whole,
        namespace: str = "",
        idle_s: float = IDLE_S,
        first_pause_s: float = FIRST_PAUSE_S,
        look_again_s: float = LOOK_AGAIN_S,
        proven_s: float = PROVEN_S,
        coalesce_s: float = COALESCE_S,
        gather_s: float = 0.0,
    ) -> None:
        """`changed` is called from a thread of the cache, after one or more changes of objects or
        of freshness; it may not raise. `slim` drops from an arriving object what is not needed.
        `idle_s`: how long a watch may be silent; after `proven_s` it has worked. What changes
        within `coalesce_s` is reported as one; in a crowd, what comes within `gather_s` is read
        together.
        """
        self._changed = changed
        self._coalesce_s = coalesce_s
        self._news = threading.Event()
        self._stopped = threading.Event()
        pace = (idle_s, first_pause_s, look_again_s, proven_s, gather_s)
        view = WatchedKind(api, selector, namespace, slim, *pace)
        self._feeds = tuple(
            Reflector(kind, view, self._news.set, self._stopped, self._hurry) for kind in kinds
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        runs = [(feed.run, feed.kind.plural) for feed in self._feeds]
        for run, name in (*runs, (self._tell, "news")):
            thread = threading.Thread(target=run, name=f"informer-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End its threads, and with them the callbacks."""
        self._stopped.set()
        self._news.set()
        for feed in self._feeds:
            feed.cut()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=5.0)  # a request on its way has its own deadline

    def objects(self) -> ObjectSet | None:
        """All of them; None until every kind has been listed once."""
        if any(feed.freshness is Freshness.LISTING for feed in self._feeds):
            return None
        merged: dict[ObjectId, Packed] = {}
        for feed in self._feeds:
            merged |= feed.objects()
        return ObjectSet(merged)

    def reached(self) -> Mapping[OwnedKind, int]:
        """The version up to which `objects`, asked for afterwards, has everything of a kind."""
        return {feed.kind: feed.reached for feed in self._feeds}

    @property
    def is_fresh(self) -> bool:
        """Whether `objects` may be taken for what the cluster has, absences included."""
        return all(feed.freshness in _CURRENT for feed in self._feeds)

    @property
    def freshness(self) -> Mapping[OwnedKind, Freshness]:
        return {feed.kind: feed.freshness for feed in self._feeds}

    @property
    def problems(self) -> Mapping[OwnedKind, ClusterError]:
        """Why a kind is not fresh."""
        rows = ((feed.kind, feed.problem) for feed in self._feeds)
        return {kind: problem for kind, problem in rows if problem is not None}

    def _hurry(self) -> None:
        for feed in self._feeds:
            feed.hurry()

    def _tell(self) -> None:
        while True:
            self._news.wait()
            if self._stopped.wait(self._coalesce_s):
                return
            self._news.clear()
            self._changed()
