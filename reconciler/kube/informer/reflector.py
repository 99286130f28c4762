"""One kind of a cache: list, watch from there, and go on after whatever happens to it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconciler.backoff import backoff_s
from reconciler.kube.client.errors import (
    ClusterError,
    Faltered,
    Gone,
    NotFound,
    Throttled,
    Unreachable,
)
from reconciler.kube.client.stream import Watch, WatchEvent
from reconciler.kube.informer.backoff import Pause
from reconciler.kube.object_set import Packed, as_number, packed
from reconciler.kube.objects import Manifest, ObjectId, OwnedKind, id_of

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer, ObjectList

LIFE_S = 300.0  # of one watch; the server ends it, so that load spreads over its replicas
_SELDOM = 30.0  # times as long: most clusters never get another project's kinds
LONGEST_PAUSE_S = 30.0
PROVEN_S = 1.0  # a watch that lived so long has worked
_QUIET_S = 1.0  # without an event: the next one is not of a crowd
_PASSING_S = 2.0  # one attempt that failed, and the next one follows so soon, is not an outage
_RELIST_AFTER = 5  # watches that failed in a row: the server may have lost what it knew

_log = logging.getLogger(__name__)


class Freshness(StrEnum):
    """What the copy of one kind is worth."""

    LISTING = "Listing"  # nothing known yet
    FRESH = "Fresh"  # as the cluster has it, but for what is on its way
    STALE = "Stale"  # as it was: no answer, or no right to look
    # The kind was not installed when it was first looked for, or is another project's: none there
    ABSENT = "Absent"
    LOST = "Lost"  # the kind was there and is not any more: as it was; what is now is not known


_AWAY = (Freshness.STALE, Freshness.ABSENT, Freshness.LOST)


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """What is looked at, and how."""

    api: ApiServer
    selector: str
    namespace: str
    slim: Callable[[dict[str, Any]], Manifest]
    idle_s: float
    first_pause_s: float
    look_again_s: float  # for a kind that is not installed
    proven_s: float  # a watch that lived so long has worked
    gather_s: float  # what follows each other within it is read together


class Reflector:
    """`run` is its thread, and the only one that writes; everybody may read."""

    def __init__(
        self,
        kind: OwnedKind,
        view: WatchedKind,
        news: Callable[[], None],
        stopped: threading.Event,
        answered: Callable[[], None],
    ) -> None:
        """`answered` is called when there is an answer again: others may try, too."""
        self.kind = kind
        self.freshness = Freshness.LISTING
        self.problem: ClusterError | None = None
        self._view = view
        self._within = view.namespace if kind.namespaced else ""
        self._news = news
        self._stopped = stopped
        self._answered = answered
        self._pause = Pause()
        self._is_asked_to_wait = False
        self._lock = threading.Lock()  # of the next two
        self._objects: dict[ObjectId, Packed] = {}
        self._watch: Watch | None = None
        self._versions: dict[ObjectId, str] = {}
        self._version: str | None = None  # where the next watch goes on; None: list first
        self.reached = 0  # the version up to which everything is in the copy
        self._was_served = False
        self._is_new = False  # it was listed, or tried to, and no watch has worked since
        self._failures = 0  # in a row
        self._read_at = float("-inf")  # when all that had arrived was read, monotonic

    def objects(self) -> dict[ObjectId, Packed]:
        with self._lock:
            return self._objects.copy()

    def cut(self) -> None:
        """End a watch that waits, or a pause."""
        self._pause.end()
        with self._lock:
            if self._watch is not None:
                self._watch.close()

    def hurry(self) -> None:
        """The server answers another kind: what waits for no reason of its own tries now."""
        self._pause.hurry()

    def run(self) -> None:
        while not self._stopped.is_set():
            self._is_asked_to_wait = False
            try:
                if self._version is None:
                    self._list()
                pause_s = self._follow(self._version or "")
            except NotFound as error:
                pause_s = self._not_served(error)
            except Gone as error:
                pause_s = self._forgotten(error)
            except ClusterError as error:
                pause_s = self._failed(error)
            except Exception as error:  # noqa: BLE001  a thread's edge: what came may be any object
                _log.debug("%s", self.kind.plural, exc_info=True)
                pause_s = self._failed(self._unreadable(error))
            self._pause.rest(pause_s, may_hurry=not self._is_asked_to_wait)

    def _list(self) -> None:
        view = self._view
        self._is_new = True
        objects: dict[ObjectId, Packed] = {}
        versions: dict[ObjectId, str] = {}

        def take(page: ObjectList) -> str:
            for item in page.items:
                oid = id_of(item)
                versions[oid] = str(item["metadata"]["resourceVersion"])
                objects[oid] = packed(view.slim(item)).smaller()
            return page.resource_version

        # map, as a loop would hold one page while the next is decoded, which is most of the memory
        pages = view.api.pages(self.kind, selector=view.selector, namespace=view.namespace)
        *_, version = map(take, pages)
        is_new = versions != self._versions
        with self._lock:
            self._objects = objects
        self._versions, self._version = versions, version
        self.reached = as_number(version)
        self._was_served = True
        self._works()
        if is_new:
            self._news()

    def _unreadable(self, error: Exception) -> ClusterError:
        """Nothing is concluded from it; it is listed again, as a watch would go on from there."""
        self._version = None
        what = f"{self.kind.plural} of cluster {self._view.api.name}"
        return Faltered(f"{what} cannot be read: {type(error).__name__}: {error}")

    def _follow(self, version: str) -> float:
        """One watch to its end. The pause before the next one."""
        view = self._view
        watch = view.api.watch(
            self.kind,
            selector=view.selector,
            resource_version=version,
            namespace=self._within,
            timeout_s=LIFE_S * random.uniform(0.8, 1.2),  # noqa: S311 - no secret
            idle_s=view.idle_s,
        )
        began = time.monotonic()
        self._works()
        with self._lock:
            self._watch = watch
        try:
            if not self._stopped.is_set():
                for event in watch:
                    self._take(event)
                    if watch.is_drained:
                        self._gather()
        except Unreachable as error:  # a break is not an outage before the next attempt failed
            _log.debug("%s", error)
        finally:
            with self._lock:
                self._watch = None
            watch.release()
            has_worked = time.monotonic() - began > view.proven_s
            self._is_new = self._is_new and not has_worked
        if has_worked:
            self._failures = 0
            self._pause.worked()
        else:
            self._failures += 1
        return self._pause_s()

    def _gather(self) -> None:
        """Each waking costs as much as reading several events, so that in a crowd they are left to
        come together. The first one after a while is waited for and read by itself."""
        before, self._read_at = self._read_at, time.monotonic()
        if self._read_at - before < _QUIET_S:
            self._stopped.wait(self._view.gather_s)

    def _works(self) -> None:
        is_back = self._failures > 0 or self.freshness in _AWAY
        self._now(Freshness.FRESH, None)
        if is_back:
            self._answered()

    def _take(self, event: WatchEvent) -> None:
        self._version = version = event.resource_version  # which `slim` may drop
        if event.type != "BOOKMARK":
            self._keep(event, version)
        self.reached = as_number(version)

    def _keep(self, event: WatchEvent, version: str) -> None:
        oid = id_of(event.object)
        if event.type == "DELETED":
            self._versions.pop(oid, None)
            with self._lock:
                known = self._objects.pop(oid, None)
            if known is not None:
                self._news()
        elif self._versions.get(oid) != version:
            self._versions[oid] = version
            now = packed(self._view.slim(event.object)).smaller()
            with self._lock:
                before, self._objects[oid] = self._objects.get(oid), now
            if now != before:  # what changed may be what `slim` drops
                self._news()

    def _not_served(self, error: NotFound) -> float:
        """Another project may go at any time, and its objects with its kinds."""
        self._version = None
        if self._was_served and not self.kind.project:
            self._now(Freshness.LOST, error)
        else:
            with self._lock:
                self._objects = {}
            self._versions = {}
            self._now(Freshness.ABSENT, None)
        pause_s = self._view.look_again_s * (_SELDOM if self.kind.project else 1.0)
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def _forgotten(self, error: Gone) -> float:
        """Servers forget in the ordinary course of things, and when they were away: the list that
        comes at once tells what was missed. What was just listed is not forgotten, and a list that
        is forgotten before its last page would be so again."""
        self._version = None
        self._failures += self._is_new
        if not self._is_new or self._failures == 1:
            return 0.0
        self._is_asked_to_wait = True
        self._lost(error)
        return self._pause_s()

    def _failed(self, error: ClusterError) -> float:
        self._failures += 1
        if self._failures >= _RELIST_AFTER:
            self._version = None
        if isinstance(error, Throttled):
            self._is_asked_to_wait = True
            pause_s = error.retry_after_s * random.uniform(1.0, 1.5)  # noqa: S311 - no secret
        else:
            pause_s = self._pause_s()
        if self.freshness is Freshness.FRESH and self._is_passing(error, pause_s):
            return pause_s
        self._lost(error)
        return pause_s

    def _lost(self, error: ClusterError) -> None:
        """What is there now is not known. Others may be answered as soon as they can see that."""
        self._pause.expect(may_hurry=not self._is_asked_to_wait)
        is_unknown = self.freshness in (Freshness.LISTING, Freshness.LOST)
        self._now(self.freshness if is_unknown else Freshness.STALE, error)

    def _is_passing(self, error: ClusterError, pause_s: float) -> bool:
        """Whether it is too early to call it an outage: what is seen is behind by no more than any
        watch may be."""
        is_short = isinstance(error, Throttled | Unreachable) and pause_s <= _PASSING_S
        return is_short and self._failures == 1

    def _pause_s(self) -> float:
        """Full jitter: a restarted server is not asked by everybody at once."""
        first_s = self._view.first_pause_s
        grown_s = backoff_s(self._failures, first_s, max(LONGEST_PAUSE_S, first_s))
        return random.uniform(0, grown_s)  # noqa: S311 - no secret

    def _now(self, freshness: Freshness, problem: ClusterError | None) -> None:
        is_new = freshness is not self.freshness
        self.freshness, self.problem = freshness, problem
        if is_new:
            _log.log(
                logging.WARNING if problem and _is_of_one_kind(problem) else logging.DEBUG,
                "%s of cluster %s: %s%s",
                self.kind.plural,
                self._view.api.name,
                freshness,
                f" ({problem})" if problem else "",
            )
            self._news()


def _is_of_one_kind(problem: ClusterError) -> bool:
    """A server that is unreachable is reported once, by the caller that asked for the objects."""
    return isinstance(problem, Faltered) or not isinstance(problem, Unreachable | Throttled)
