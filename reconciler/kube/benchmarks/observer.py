"""One look at what is there of measurements, and at who could be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.api.benchmark import BenchmarkResult
from reconciler.api.meta import ObjectRef
from reconciler.kube.benchmarks.deciding import JobAttempt, KnownResult, NeededBenchmark
from reconciler.kube.benchmarks.reader import PodsAndNodes, PodsAndNodesReader
from reconciler.kube.benchmarks.reading import CONFIG_MAP, asked_of, read_attempt, read_evidence
from reconciler.kube.benchmarks.subjects import (
    MeasurableService,
    ServingPod,
    measurable,
    served,
    serving_pods,
)
from reconciler.kube.benchmarks.unserved import PodWants, UnservedClass, unserved_classes
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, ObjectId, document_id
from reconciler.kube.render.labels import is_benchmark
from reconciler.kube.render.placed import PlacedService
from reconciler.memo import Memo

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

Documents = Mapping[ObjectId, Manifest]

_NOTHING = PodsAndNodes()


@dataclass(frozen=True, slots=True)
class BenchmarkObservation:
    """What was found. `services` can be measured, `skipped` is why others cannot; `served` is
    (namespace, digest of a model, runtime) of all that is declared; `evidence` and `attempts` are
    what is there. Where pods could not be read it `is_known` no more, and nothing is
    done."""

    services: Mapping[ObjectRef, MeasurableService] = field(default_factory=dict)
    skipped: Mapping[ObjectRef, str] = field(default_factory=dict)
    served: frozenset[tuple[str, str, str]] = frozenset()
    evidence: tuple[KnownResult, ...] = ()
    jobs: tuple[ObjectId, ...] = ()
    attempts: tuple[JobAttempt, ...] = ()
    needs: tuple[NeededBenchmark, ...] = ()
    is_known: bool = True

    @property
    def objects(self) -> Iterator[ObjectId]:
        """What is there of measurements."""
        yield from self.jobs
        yield from (each.oid for each in self.evidence)

    @property
    def results(self) -> tuple[BenchmarkResult, ...]:
        return tuple(each.result for each in self.evidence if each.result is not None)


class BenchmarkObserver:
    """One thread uses it. It asks for pods and nodes where something can be measured, or is."""

    def __init__(self, api: ApiServer) -> None:
        self._reader = PodsAndNodesReader(api)
        self._judged = Memo[ObjectRef, MeasurableService | str]()
        self._evidence = Memo[ObjectId, KnownResult]()
        self._wants = Memo[ObjectRef, PodWants]()
        self._needs = Memo[str, tuple[NeededBenchmark, ...]]()

    def __call__(
        self, placed: Iterable[PlacedService], objects: ObjectSet, documents: Documents
    ) -> BenchmarkObservation:
        placed = tuple(placed)
        judged = {p.workload.ref: self._judge(p) for p in placed}
        services = {ref: m for ref, m in judged.items() if isinstance(m, MeasurableService)}
        own = sorted(_of_benchmarks(objects))
        jobs = tuple(oid for oid in own if oid.kind == "Job")
        states = _serving(objects), tuple(map(objects.state, own))
        pods_and_nodes = self._reader.find(*states) if services or jobs else _NOTHING
        seen = pods_and_nodes or _NOTHING
        attempts = (read_attempt(objects[oid], seen.pods) for oid in jobs)
        needs = self._needs.find(
            "all", (services, seen), lambda: tuple(self._unasked_needs(services, seen))
        )
        self._judged.keep(judged)
        self._wants.keep(services)
        self._evidence.keep(objects.keys())
        return BenchmarkObservation(
            services=services,
            skipped={ref: why for ref, why in judged.items() if isinstance(why, str)},
            served=served(placed),
            evidence=tuple(self._read(objects, oid) for oid in own if oid.kind == "ConfigMap"),
            jobs=jobs,
            attempts=tuple(attempt for attempt in attempts if attempt is not None),
            needs=tuple(_asked(need, documents) for need in needs),
            is_known=pods_and_nodes is not None,
        )

    def _unasked_needs(
        self, services: Mapping[ObjectRef, MeasurableService], seen: PodsAndNodes
    ) -> Iterator[NeededBenchmark]:
        current = {ref: s.placed.workload.process_digest for ref, s in services.items()}
        serving = tuple(serving_pods(seen.pods, seen.nodes, current))
        elsewhere = unserved_classes(services, seen.pods, seen.nodes, serving, self._wants_of)
        places: tuple[ServingPod | UnservedClass, ...] = (*serving, *elsewhere)
        for place in places:
            service = services[place.service]
            yield NeededBenchmark(service.key(place.build, place.device), service, place)

    def _wants_of(self, service: MeasurableService) -> PodWants:
        return self._wants.find(service.ref, (service,), partial(PodWants.of, service))

    def _judge(self, placed: PlacedService) -> MeasurableService | str:
        return self._judged.find(placed.workload.ref, (placed,), partial(measurable, placed))

    def _read(self, objects: ObjectSet, oid: ObjectId) -> KnownResult:
        return self._evidence.find(oid, (objects.state(oid),), lambda: read_evidence(objects[oid]))


def _of_benchmarks(objects: ObjectSet) -> Iterator[ObjectId]:
    """Those of our objects that are a measurement's."""
    for oid in (*objects.of_kind("ConfigMap"), *objects.of_kind("Job")):
        if oid.name.startswith(CONFIG_MAP) and is_benchmark(objects[oid]):
            yield oid


def _serving(objects: ObjectSet) -> tuple[object, ...]:
    """What changes whenever pods that serve come, go, or become ready."""
    return tuple(map(objects.state, sorted(objects.of_kind("Deployment"))))


def _asked(need: NeededBenchmark, documents: Documents) -> NeededBenchmark:
    asked = asked_of(documents.get(document_id(need.service.ref)))
    return need if asked is None else replace(need, asked=asked)
