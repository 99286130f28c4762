"""The agents of a fleet and its clusters as one target: one plan spans them all."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.agents.parallel import ask_all
from reconciler.core.moves import handover_s, moving
from reconciler.core.observation import Observation, Successor, TargetState
from reconciler.core.plan import Change, Plan
from reconciler.core.prune import Before
from reconciler.core.target import Outcome
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.observed import (
    ClusterObservation,
    FleetObservation,
    FleetPlan,
    ObservedCluster,
    PlannedCluster,
    observed_clusters,
    planned_clusters,
)
from reconciler.kube.target import ClusterTarget
from reconciler.loop.desired import NOTHING_BEFORE

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes, AgentReport
    from reconciler.api.meta import ObjectRef
    from reconciler.fleet.workload import Workload
    from reconciler.loop.desired import Desired
    from reconciler.source.history import NotedRevision

LOOK_S = 60.0  # for all targets together

_Answer = Observation | ClusterObservation


class Together:
    """One thread uses it. Clusters are observed and changed in parallel; agents are only observed.

    Nothing but who leaves since when, and which clusters still owe an answer, lives between passes.
    """

    def __init__(
        self, agents: AgentNodes, clusters: Sequence[ClusterTarget], look_s: float = LOOK_S
    ) -> None:
        self._agents = agents
        self.clusters = tuple(clusters)
        self._look_s = look_s
        self._leaving: dict[tuple[str, ObjectRef], float] = {}  # since when, monotonic
        self._asked = {cluster.name: threading.Lock() for cluster in clusters}  # by one question

    def observe(self, desired: Desired) -> Observation:
        """All of them, at once. Who gives no answer in time is unreachable, and is asked nothing
        else until the question that it was asked has ended."""
        questions: dict[str, Callable[[], _Answer]] = {"agents": self._agents.observe}
        questions |= {c.name: partial(self._ask, c, desired) for c in self.clusters}
        answers = ask_all(questions, time.monotonic() + self._look_s)
        agents = answers.pop("agents", None)
        assert isinstance(agents, Observation), "it has a deadline of its own"
        by_cluster: dict[str, ClusterObservation] = {}
        for cluster in self.clusters:
            late = f"no answer within {self._look_s:g} s"
            silent = ClusterObservation(TargetState(cluster.name, reachable=False, message=late))
            answer = answers.get(cluster.name, silent)
            assert isinstance(answer, ClusterObservation)
            by_cluster[cluster.name] = answer
        clusters = {
            name: each.cluster for name, each in by_cluster.items() if each.cluster is not None
        }
        agents = self._with_reports(agents, clusters.values())
        running = (instance for each in by_cluster.values() for instance in each.instances)
        return FleetObservation(
            {**agents.targets, **{name: each.state for name, each in by_cluster.items()}},
            (*agents.instances, *running),
            clusters,
        )

    def _ask(self, cluster: ClusterTarget, desired: Desired) -> ClusterObservation:
        """In a thread. A question that hangs is left behind, and goes on with the same objects."""
        asked = self._asked[cluster.name]
        if not asked.acquire(blocking=False):
            message = "it has not answered what it was asked before: it is asked again after that"
            return ClusterObservation(TargetState(cluster.name, reachable=False, message=message))
        try:
            return cluster.observe(desired)
        finally:
            asked.release()

    def plan(
        self,
        desired: Desired,
        observed: Observation,
        confirmed: Iterable[str] = (),
        before: Before = NOTHING_BEFORE,
    ) -> Plan:
        """The services' plan, with what the objects of every cluster need, by which `apply` goes. A
        cluster that falls silent meanwhile is one that gave no
        answer, and all is planned again without it."""
        confirmed = tuple(confirmed)
        policy = desired.policy(confirmed, before)
        observed = self._with_overdue(observed, desired.assignment.workloads)
        while True:
            services = desired.plan(observed, confirmed, before)
            clusters = observed_clusters(observed)
            asked = [each for each in self.clusters if each.name in clusters]
            planned: dict[str, PlannedCluster] = {}
            try:
                for cluster in asked:
                    seen = clusters[cluster.name]
                    planned[cluster.name] = cluster.plan(desired, seen, observed, services, policy)
            except ClusterError as error:
                observed = _without(observed, cluster.name, str(error))
            else:
                return FleetPlan.of(services, planned)

    def apply(self, plan: Plan, changes: Sequence[Change]) -> tuple[Outcome, ...]:
        """Carry out changes of a plan, each cluster's in a thread of its own. Never raises for one
        that cannot be: that is an Outcome. Blocks on no readiness."""
        by_target: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_target[change.target].append(change)
        outcomes = [
            self._agents.apply(change)
            for target, of_one in by_target.items()
            for change in of_one
            if target.startswith("node/")
        ]
        states = planned_clusters(plan)
        planned = [(c, states[c.name]) for c in self.clusters if c.name in states]
        if not planned:
            return tuple(outcomes)

        def apply(work: tuple[ClusterTarget, PlannedCluster]) -> tuple[Outcome, ...]:
            cluster, state = work
            return cluster.apply(state, by_target[cluster.name], plan.revision)

        with ThreadPoolExecutor(len(planned), "cluster") as pool:
            return (*outcomes, *(done for each in pool.map(apply, planned) for done in each))

    def noted(self) -> NotedRevision | None:
        """The commit that was followed last, by the clusters that answer: the newest note. Raises
        ClusterError: none does."""
        revisions: list[NotedRevision | None] = []
        failed: ClusterError | None = None
        for cluster in self.clusters:
            try:
                revisions.append(cluster.noted())
            except ClusterError as error:
                failed = error
        if failed is not None and not revisions:
            raise failed
        return max(filter(None, revisions), key=lambda each: each.noted_at, default=None)

    def accepts(self, fleet: str, head: str) -> bool:
        """Whether a person has let this head in, in one of the clusters that answer."""
        return any(cluster.accepts(fleet, head) for cluster in self.clusters)

    def withdraw(self, fleet: str) -> None:
        """The head that was let in is followed: another time it has to be let in again."""
        for cluster in self.clusters:
            cluster.withdraw(fleet)

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()

    def _with_reports(
        self, agents: Observation, clusters: Iterable[ObservedCluster]
    ) -> Observation:
        """Add what the clusters know of nodes whose agents gave no answer."""
        reports: dict[str, AgentReport] = {}
        for cluster in clusters:
            for node in self._agents.silent:
                report, known = cluster.nearby.report(node), reports.get(node)
                if report is not None and (known is None or report.answer is not None):
                    reports[node] = report
        return self._agents.merge(reports) if reports else agents

    def _with_overdue(
        self, observed: Observation, workloads: Sequence[Workload]
    ) -> FleetObservation:
        """Add to each cluster which of the moves away from there take too long. An agent reports
        the same of its own node."""
        clusters, now = observed_clusters(observed), time.monotonic()
        since: dict[tuple[str, ObjectRef], float] = {}
        targets = dict(observed.targets)
        for name in clusters:
            moves = moving(name, observed.instances, workloads)
            since |= {(name, ref): self._leaving.get((name, ref), now) for ref in moves}
            successors = {
                ref: Successor(want.target, is_overdue=now - since[name, ref] >= handover_s(want))
                for ref, want in moves.items()
            }
            if successors:
                targets[name] = replace(targets[name], successors=successors)
        self._leaving = since
        return FleetObservation(targets, observed.instances, clusters)


def _without(observed: Observation, target: str, why: str) -> FleetObservation:
    """The same look, with one target that stopped answering."""
    was = observed.targets[target]
    lost = TargetState(target, reachable=False, seen_at=was.seen_at, message=why)
    running = tuple(i for i in observed.instances if i.target != target)
    clusters = {name: c for name, c in observed_clusters(observed).items() if name != target}
    return FleetObservation({**observed.targets, target: lost}, running, clusters)
