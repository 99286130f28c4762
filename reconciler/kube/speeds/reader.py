"""A thread beside the loop that asks the companions of ready pods how fast they write, and writes
that to the status of their service: once a minute, and only where this process leads.

Nothing waits for it. What a pass found is handed to it; a companion that gives no answer, or an API
server, costs a deadline here and no more.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from reconciler.agents.scrape import scrape
from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import ClusterError, NotFound
from reconciler.kube.instance_entry import SPEED_EVERY_S, instances_status, pool_entry
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import SPEED_MANAGER, ObjectId, ref_of
from reconciler.kube.observed import observed_clusters
from reconciler.kube.render.probes import COMPANION_PORT
from reconciler.kube.speeds.deciding import (
    PodAnswer,
    ServicePods,
    Speeds,
    counting_pools,
    is_news,
    own_speeds,
    read_answer,
    ready_pods,
    speed_of,
)
from reconciler.loop import Listener
from reconciler.memo import Memo
from reconciler.worker import Worker

if TYPE_CHECKING:
    from reconciler.fleet.workload import Workload
    from reconciler.kube.client.api import ApiServer
    from reconciler.loop import Pass

LASTS_S = 150.0  # an answer: a companion may miss one question, and not two
_LOOK_EVERY_S = 5.0  # for services that are due: a new one is asked soon
_WITHIN_S = 1.0
_AT_ONCE = 32
_MOST_BYTES = 1 << 18  # a router with a thousand models

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpeedInputs:
    """What a pass found in one cluster: what should run, the fleet's documents there, and the
    EndpointSlices of its Services."""

    workloads: tuple[Workload, ...]
    documents: ObjectSet
    slices: ObjectSet


@dataclass(frozen=True, slots=True)
class _Pod:
    namespace: str
    name: str
    host: str


class PodSpeeds(Listener):
    """The pods of one cluster. It hears of passes in the loop's thread, the rest runs in one of its
    own. `wrote` learns how many statuses were written."""

    def __init__(
        self,
        api: ApiServer,
        leads: Callable[[], bool],
        wrote: Callable[[int], None] = lambda count: None,
        *,
        port: int = COMPANION_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._leads, self._wrote = api, leads, wrote
        self._port, self._clock = port, clock
        self.cluster = api.name
        self._inputs: SpeedInputs | None = None
        self._pods = Memo[ObjectId, tuple[tuple[str, str], ...]]()
        self._entries = Memo[ObjectId, Speeds]()
        self._asked: dict[ObjectRef, tuple[str | None, float]] = {}  # in which pool, and when
        self._answers: dict[_Pod, tuple[float, PodAnswer]] = {}
        self._failed: dict[ObjectRef, str] = {}
        self._worker = Worker(
            *("speeds", self.round),
            every_s=_LOOK_EVERY_S,
            first_s=_LOOK_EVERY_S,
            what="round of speeds: the loop goes on without",
        )

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.close()

    def on_applied(self, done: Pass) -> None:
        """Note the clusters of a pass; one that gave no answer stays as it was."""
        if (cluster := observed_clusters(done.observed).get(f"cluster/{self.cluster}")) is not None:
            slices = ObjectSet.of(cluster.snapshot.slices)
            workloads = done.desired.assignment.workloads
            self._inputs = SpeedInputs(workloads, cluster.documents, slices)

    def round(self) -> None:
        """Ask the pods of every service that was not asked for a minute, and write what is news."""
        observed = self._inputs
        if observed is None or not self._leads():
            return
        written = self._written(observed)
        services = self._services(observed, written)
        self._forget(services)
        due = [ref for ref in sorted(services) if self._is_due(ref, services[ref])]
        if not due:
            return
        with ThreadPoolExecutor(_AT_ONCE, "speeds") as pool:
            for refs in _batches(due, services):
                if not self._may_go_on():
                    return
                pods = [pod for ref in refs for pod in _pods_of(ref, services[ref])]
                answered = zip(pods, pool.map(self._ask, pods), strict=True)
                self._keep((pod, answer) for pod, answer in answered if answer is not None)
                for ref in refs:
                    if not self._may_go_on():  # asking takes a while
                        return
                    self._asked[ref] = services[ref].pool, self._clock()
                    self._report(ref, services[ref], written.get(ref, {}))

    def _may_go_on(self) -> bool:
        return not self._worker.is_ending and self._leads()

    # What there is.

    def _written(self, observed: SpeedInputs) -> Mapping[ObjectRef, Speeds]:
        """What each service's status says of its pods; every document is there."""
        documents = observed.documents
        self._entries.keep(documents.keys())
        return {
            ref_of(oid): self._entries.find(
                oid, (documents.state(oid),), partial(_own_speeds, documents, oid)
            )
            for oid in documents.of_kind("InferenceService")
        }

    def _services(
        self, observed: SpeedInputs, written: Mapping[ObjectRef, Speeds]
    ) -> dict[ObjectRef, ServicePods]:
        """What is to be asked or written: services with ready pods that count, and those whose
        status says something."""
        pools = counting_pools(observed.workloads, self.cluster)
        pods: defaultdict[ObjectRef, dict[str, str]] = defaultdict(dict)
        self._pods.keep(observed.slices.keys())
        for oid in sorted(observed.slices):
            ref = observed.slices.service(oid)
            if ref is not None and ref in pools and ref in written:
                given = (observed.slices.state(oid),)
                service_pods = self._pods.find(
                    oid, given, partial(_ready_pods, observed.slices, oid)
                )
                pods[ref] = {**dict(service_pods), **pods[ref]}
        there = {ref: ServicePods(pools[ref], each) for ref, each in pods.items() if each}
        gone = {ref: ServicePods() for ref, speed in written.items() if speed and ref not in there}
        return there | gone

    def _is_due(self, ref: ObjectRef, service: ServicePods) -> bool:
        """Once a minute; and at once when it ends there. One that begins again waits for its turn:
        a pod that is ready every other moment is not written as often."""
        pool, at = self._asked.get(ref, (None, -math.inf))
        return pool not in (None, service.pool) or self._clock() - at >= SPEED_EVERY_S

    def _forget(self, services: Mapping[ObjectRef, ServicePods]) -> None:
        """What is gone."""
        since = self._clock() - SPEED_EVERY_S
        self._asked = {
            r: answer for r, answer in self._asked.items() if r in services or answer[1] > since
        }
        self._failed = {ref: why for ref, why in self._failed.items() if ref in services}
        pods = {pod for ref, service in services.items() for pod in _pods_of(ref, service)}
        self._answers = {pod: answered for pod, answered in self._answers.items() if pod in pods}

    # Asking.

    def _ask(self, pod: _Pod) -> PodAnswer | None:
        if self._worker.is_ending:  # a service may have a thousand pods, and none answers
            return None
        url = f"http://{pod.host}:{self._port}/metrics"
        body = scrape(url, within_s=_WITHIN_S, most_bytes=_MOST_BYTES)
        return None if body is None else read_answer(body)

    def _keep(self, answered: Iterable[tuple[_Pod, PodAnswer]]) -> None:
        at = self._clock()
        self._answers |= {pod: (at, answer) for pod, answer in answered}

    def _speed(self, ref: ObjectRef, service: ServicePods) -> float | None:
        since = self._clock() - LASTS_S
        answers = {pod.name: self._answers.get(pod) for pod in _pods_of(ref, service)}
        fresh = {
            name: answer[1] for name, answer in answers.items() if answer and answer[0] >= since
        }
        return speed_of(service.pods, fresh)

    # Writing.

    def _report(self, ref: ObjectRef, service: ServicePods, before: Speeds) -> None:
        speed = None if service.pool is None else self._speed(ref, service)
        now = {} if service.pool is None or speed is None else {service.pool: speed}
        if not is_news(before, now):
            return
        entries = [pool_entry(pool, each) for pool, each in now.items()]
        manifest = instances_status(ref, entries)
        try:
            self._api.apply(manifest, manager=SPEED_MANAGER, force=True, subresource="status")
        except NotFound:
            return  # it was deleted meanwhile
        except ClusterError as error:
            if self._failed.get(ref) != str(error):
                _log.warning("%s: the speed of %s: %s", self.cluster, ref.label, error)
            self._failed[ref] = str(error)
        else:
            self._failed.pop(ref, None)
            self._wrote(1)


def _own_speeds(documents: ObjectSet, oid: ObjectId) -> Speeds:
    return own_speeds(documents[oid])


def _ready_pods(slices: ObjectSet, oid: ObjectId) -> tuple[tuple[str, str], ...]:
    return tuple(ready_pods(slices[oid]))


def _pods_of(ref: ObjectRef, service: ServicePods) -> Iterator[_Pod]:
    for name, host in service.pods.items():
        yield _Pod(ref.namespace, name, host)


def _batches(
    refs: Iterable[ObjectRef], services: Mapping[ObjectRef, ServicePods]
) -> Iterator[tuple[ObjectRef, ...]]:
    """Services whose pods are asked together: as many as keep the threads busy."""
    batch: list[ObjectRef] = []
    pods = 0
    for ref in refs:
        batch.append(ref)
        pods += len(services[ref].pods)
        if pods >= _AT_ONCE:
            yield tuple(batch)
            batch, pods = [], 0
    if batch:
        yield tuple(batch)
