"""The answers to a scheduler: which nodes a pod may go to, and how good each is. Pure.

One thread asks. What was found of a node for a demand is kept while the facts stay the same:
schedulers ask the same again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reconciler.kube.extender.demand import ServiceFacts, node_facts, pod_demand, service_key
from reconciler.kube.extender.facts import NO_SERVICE, ClusterFacts
from reconciler.kube.extender.wire import ExtenderArgs
from reconciler.placement.nodefit import CandidateNode, NodeMisfit, PodDemand, node_misfit
from reconciler.placement.score import Merits, ScoreWeights, scores

_MOST_KEPT = 1000  # demands
_MOST_JUDGED = 200_000  # pairs of a demand and a node, some 400 bytes each
_MOST_SCORED = 8  # lists of nodes, which may be long
_KEPT_S = 60.0


class Unknown(NamedTuple):
    """How many of the compared nodes lack a fact."""

    nodes: int = 0
    speed: int = 0
    utilisation: int = 0
    cost: int = 0


NOTHING = Unknown()


@dataclass(frozen=True, slots=True)
class Scored:
    """`service` is empty for a pod that is not a fleet's, or of an unknown service."""

    scores: list[int]
    service: str = ""
    unknown: Unknown = NOTHING


class Judge:
    """Over the facts of one moment."""

    def __init__(self, facts: ClusterFacts, weights: ScoreWeights, prefix: str) -> None:
        self._facts = facts
        self._weights = weights
        self._prefix = prefix
        self._misfits: dict[PodDemand, dict[str, NodeMisfit | None]] = {}
        self._judged = 0  # pairs in `_misfits`
        self._speeds: dict[tuple[object, ...], float | None] = {}
        self._scored: dict[tuple[object, ...], tuple[Mapping[str, float], float, Scored]] = {}

    def misfits(self, args: ExtenderArgs) -> dict[str, NodeMisfit]:
        """The nodes that cannot take the pod. A pod that is not ours may go anywhere."""
        wanted = self._demand(args)
        if wanted is None:
            return {}
        _, demand = wanted
        if args.items is not None:
            nodes = self._sent(args)
            misfits = {name: node_misfit(demand, node) for name, node in nodes.items()}
        else:
            misfits = self._kept(demand, args.names)
        judged = ((name, misfits[name]) for name in args.names if name in misfits)
        return {name: misfit for name, misfit in judged if misfit is not None}

    def scored(self, args: ExtenderArgs, used: Mapping[str, float], now: float) -> Scored:
        """`used`: the utilisation of nodes, where it is known; `now` in seconds since the epoch."""
        wanted = self._demand(args)
        if wanted is None:
            return Scored([0] * len(args.names))
        key = (*wanted, args.names)
        kept = None if args.items is not None else self._scored.get(key)
        if kept is not None and now - kept[1] < _KEPT_S and kept[0] == used:
            return kept[2]
        scored = self._compared(*wanted, args, used, now)
        if args.items is None:
            if len(self._scored) >= _MOST_SCORED:
                self._scored.clear()
            self._scored[key] = (used, now, scored)
        return scored

    def _compared(
        self,
        service: ServiceFacts,
        demand: PodDemand,
        args: ExtenderArgs,
        used: Mapping[str, float],
        now: float,
    ) -> Scored:
        are_sent = args.items is not None
        nodes = self._sent(args) if are_sent else self._facts.nodes
        kept = {} if are_sent else self._speeds  # labels that were sent may say anything
        merits = [
            Merits(self._speed(service, demand, node, now, kept), used.get(name), node.cost)
            if (node := nodes.get(name))
            else Merits(utilisation=used.get(name))
            for name in args.names
        ]
        unknown = Unknown(
            len(merits),
            sum(each.tokens_per_second is None for each in merits),
            sum(each.utilisation is None for each in merits),
            sum(each.cost is None for each in merits),
        )
        known = demand.service if service is not NO_SERVICE else ""
        return Scored(scores(merits, self._weights), known, unknown)

    def _demand(self, args: ExtenderArgs) -> tuple[ServiceFacts, PodDemand] | None:
        key = service_key(args.pod)
        if key is None:
            return None
        service, pool = self._facts.service(key)
        return service, pod_demand(args.pod, key, service, pool)

    def _kept(self, demand: PodDemand, names: tuple[str, ...]) -> dict[str, NodeMisfit | None]:
        misfits = self._misfits.get(demand)
        if misfits is None:
            if len(self._misfits) >= _MOST_KEPT or self._judged >= _MOST_JUDGED:
                self._misfits.clear()
                self._judged = 0
            misfits = self._misfits[demand] = {}
        nodes, before = self._facts.nodes, len(misfits)
        for name in names:
            if name not in misfits and name in nodes:
                misfits[name] = node_misfit(demand, nodes[name])
        self._judged += len(misfits) - before
        return misfits

    def _sent(self, args: ExtenderArgs) -> dict[str, CandidateNode]:
        """The nodes as the scheduler has them, with what we know of our pods there."""
        facts = self._facts
        sent = {n: node_facts(i, facts.pools, self._prefix) for n, i in (args.items or {}).items()}
        return {
            n: replace(candidate, tenants=facts.tenants.get(n, ())) for n, candidate in sent.items()
        }

    def _speed(
        self,
        service: ServiceFacts,
        demand: PodDemand,
        node: CandidateNode,
        now: float,
        kept: dict[tuple[object, ...], float | None],
    ) -> float | None:
        labels = node.labels
        own = demand.namespace
        key = (own, service.measured, demand.gpus, labels.vendor, labels.arch, labels.vram)
        if key not in kept:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            speeds = self._facts.speeds
            kept[key] = speeds.of(own, service.measured, labels, demand.gpus, now)
        return kept[key]
