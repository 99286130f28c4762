"""What is known of a cluster's nodes and of our pods there, at one moment. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from reconciler.api.benchmark import BenchmarkResult, DeviceClass, newest
from reconciler.api.nodelabels import NodeLabels
from reconciler.kube.extender.demand import MeasuredModel, PoolFacts, ServiceFacts, ServiceKey
from reconciler.placement.nodefit import CandidateNode, PodDemand

NO_SERVICE = ServiceFacts()


class MeasuredSpeeds:
    """Measured speeds, by what was measured and the namespace that it is written in: there anybody
    with rights in it may say what he likes, of its own services. One thread asks."""

    def __init__(self, results: Iterable[tuple[str, BenchmarkResult]] = ()) -> None:
        self._results: defaultdict[tuple[str, MeasuredModel], list[BenchmarkResult]] = defaultdict(
            list
        )
        for namespace, result in results:
            key = result.key
            model = MeasuredModel(key.model, key.runtime, key.settings)
            self._results[namespace, model].append(result)

    def of(
        self,
        namespace: str,
        models: tuple[MeasuredModel, ...],
        labels: NodeLabels,
        gpus: int,
        now: float,
    ) -> float | None:
        """Tokens a second of a service's models on such a node, of the slowest; None: not of all of
        them is it known, by a measurement that still counts."""
        own = [self._results.get((namespace, model), ()) for model in models]
        if not own or not all(own):
            return None
        device = DeviceClass.labelled(labels, gpus)
        if device is None:
            return None
        measured = [newest(results, now, device=device) for results in own]
        speeds = [each.tokens_per_second for each in measured if each is not None]
        known = [speed for speed in speeds if speed is not None]
        return min(known) if len(known) == len(models) else None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """`nodes` with our pods there; `tenants` are those alone, by node."""

    nodes: Mapping[str, CandidateNode] = field(default_factory=lambda: MappingProxyType({}))
    services: Mapping[ServiceKey, ServiceFacts] = field(
        default_factory=lambda: MappingProxyType({})
    )
    pools: Mapping[str, PoolFacts] = field(default_factory=lambda: MappingProxyType({}))
    tenants: Mapping[str, tuple[PodDemand, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    speeds: MeasuredSpeeds = field(default_factory=MeasuredSpeeds)

    def service(self, key: ServiceKey) -> tuple[ServiceFacts, PoolFacts | None]:
        facts = self.services.get(key, NO_SERVICE)
        return facts, self.pools.get(facts.pool)
