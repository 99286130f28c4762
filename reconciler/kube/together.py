"""The agents of a fleet and its clusters as one target: one plan spans them all."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.agents.parallel import ask_all
from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.target import ClusterTarget
from reconciler.plan import Action, Change, Instance, Observation, Plan, TargetState
from reconciler.target import Outcome

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes, Heard
    from reconciler.api.meta import ObjectRef
    from reconciler.desired import Desired
    from reconciler.workload import Workload

LOOK_S = 60.0  # for all targets together
_HANDOVER_S = 1800.0  # rollout.handover, where what runs does not say

_Answer = Observation | tuple[TargetState, tuple[Instance, ...]]


class Together:
    """One thread uses it. Clusters are looked at and changed in parallel; agents are looked at."""

    def __init__(
        self, agents: AgentNodes, clusters: Sequence[ClusterTarget], look_s: float = LOOK_S
    ) -> None:
        self._agents = agents
        self.clusters = tuple(clusters)
        self._look_s = look_s
        self._revision = ""
        self._planned: frozenset[str] = frozenset()
        self._leaving: dict[tuple[str, ObjectRef], float] = {}  # since when, monotonic

    def heed(self, why_not: Callable[[str], str]) -> None:
        """Ask, with a cluster's name, why nothing may be written there; empty: it may."""
        for cluster in self.clusters:
            cluster.why_not = partial(why_not, cluster.api.name)

    def follow(self, desired: Desired) -> None:
        """From now on this is what the clusters should have."""
        for cluster in self.clusters:
            cluster.follow(desired)

    def observe(self, workloads: Iterable[Workload] = ()) -> Observation:
        """All of them, at once. Who gives no answer in time is unreachable."""
        questions: dict[str, Callable[[], _Answer]] = {"agents": self._agents.observe}
        questions |= {cluster.name: cluster.observe for cluster in self.clusters}
        answers = ask_all(questions, time.monotonic() + self._look_s)
        agents = answers.pop("agents", None)
        assert isinstance(agents, Observation), "it has a deadline of its own"
        targets: dict[str, TargetState] = {}
        running: list[Instance] = []
        for cluster in self.clusters:
            late = f"no answer within {self._look_s:g} s"
            silent = TargetState(cluster.name, reachable=False, message=late), ()
            answer = answers.get(cluster.name, silent)
            assert isinstance(answer, tuple)
            state, found = answer
            targets[cluster.name] = state
            running += found
        agents = self._with_words(agents, targets)
        return Observation({**agents.targets, **targets}, (*agents.instances, *running))

    def plan(
        self,
        desired: Desired,
        observed: Observation,
        confirmed: Iterable[str] = (),
        other_fleet: str | None = None,
    ) -> Plan:
        """The services' plan, with what the objects of every cluster need."""
        confirmed = tuple(confirmed)
        made = desired.plan(observed, confirmed, other_fleet)
        self._revision = made.revision
        policy = desired.policy(confirmed, other_fleet)
        arrived = self._arrived(made, observed)
        for cluster in self.clusters:
            if not observed.targets[cluster.name].reachable:
                continue
            try:
                objects = cluster.plan(made, policy, arrived, observed)
            except ClusterError as error:
                lost = _without(observed, cluster.name, str(error))
                return self.plan(desired, lost, confirmed, other_fleet)
            made = made.joined(objects.changes, objects.blocked, {cluster.name: objects.unchanged})
        self._planned = frozenset(t for t, state in observed.targets.items() if state.reachable)
        return made

    def apply(self, change: Change) -> Outcome:
        return self.apply_all((change,))[0]

    def apply_all(self, changes: Sequence[Change]) -> tuple[Outcome, ...]:
        """Each cluster in a thread of its own; it applies in parallel what it may."""
        by_target: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_target[change.target].append(change)
        outcomes = [
            self._agents.apply(change)
            for target, of_one in by_target.items()
            for change in of_one
            if target.startswith("node/")
        ]
        clusters = [cluster for cluster in self.clusters if cluster.name in self._planned]
        if not clusters:
            return tuple(outcomes)

        def apply(cluster: ClusterTarget) -> tuple[Outcome, ...]:
            return cluster.apply_all(by_target[cluster.name], self._revision)

        with ThreadPoolExecutor(len(clusters), "cluster") as pool:
            return (*outcomes, *(done for each in pool.map(apply, clusters) for done in each))

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()

    def _with_words(self, agents: Observation, clusters: Mapping[str, TargetState]) -> Observation:
        """With what the clusters know of nodes whose agents gave no answer."""
        told: dict[str, Heard] = {}
        for cluster in self.clusters:
            for node in self._agents.silent if clusters[cluster.name].reachable else ():
                word, known = cluster.nearby.heard(node), told.get(node)
                if word is not None and (known is None or word.answer is not None):
                    told[node] = word
        return self._agents.hear(told) if told else agents

    def _arrived(self, plan: Plan, observed: Observation) -> frozenset[ObjectRef]:
        """Services that leave a cluster and need not stay any longer: their successor answers, or
        `rollout.handover` is over."""
        ready = {(i.target, i.ref) for i in observed.instances if i.ready}
        now = time.monotonic()
        moves = [c for c in plan.changes if c.action is Action.MOVE and c.object is None]
        since = {(c.target, c.ref): self._leaving.get((c.target, c.ref), now) for c in moves}
        self._leaving = since
        return frozenset(
            c.ref
            for c in moves
            if (c.home, c.ref) in ready or now - since[c.target, c.ref] >= _handover_s(c)
        )


def _handover_s(change: Change) -> float:
    said = change.desired.lifecycle.get("rollout.handover") if change.desired else None
    return _HANDOVER_S if said is None else float(said)


def _without(observed: Observation, target: str, why: str) -> Observation:
    """The same look, with one target that stopped answering."""
    lost = replace(observed.targets[target], reachable=False, message=why)
    running = tuple(i for i in observed.instances if i.target != target)
    return Observation({**observed.targets, target: lost}, running)
