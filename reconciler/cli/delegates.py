"""What is particular to loops over a whole fleet: every agent, and the clusters that are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.agents import left
from reconciler.cli.agents import as_told
from reconciler.cli.clusters import must_have_name
from reconciler.core.target import changes_to_apply
from reconciler.loop import LoopDelegate
from reconciler.loop.desired import CachedFacts, Desired
from reconciler.source.verdict import Acceptance

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.cli.arrivals import ArrivalConsole
    from reconciler.cli.clusters import ClusterWiring
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.core.prune import Before
    from reconciler.core.target import Outcome
    from reconciler.fleet.fleet import Fleet
    from reconciler.kube.together import Together
    from reconciler.loop.interfaces import Following
    from reconciler.source.history import NotedRevision


class FleetDelegate(LoopDelegate):
    """Of a loop that only compares. `in_cluster` fills in which cluster a pool is in; `together`
    is there where clusters are named."""

    def __init__(
        self,
        agents: AgentNodes,
        in_cluster: Callable[[Fleet], Fleet],
        facts: CachedFacts,
        together: Together | None,
    ) -> None:
        super().__init__(agents, facts)
        self._agents = agents
        self._in_cluster = in_cluster
        self._together = together
        self._noted: NotedRevision | None = None
        self._fleet = ""  # its name, once it is known
        self._is_let_in = False  # a head that would be held is followed next

    def apply_overrides(self, fleet: Fleet) -> Fleet:
        if self._together:
            self._fleet = must_have_name(fleet)
        fleet = self._in_cluster(fleet)
        self._agents.follow(fleet)
        return fleet

    def apply_agent_overrides(self, desired: Desired) -> Desired:
        """Decided as the agents decide it. It begins with what was read: what an agent took back is
        not in that."""
        stated = desired.loaded.fleet
        fleet = self._in_cluster(stated) if stated else desired.fleet
        fleet = as_told(fleet, self._agents)
        if fleet.objects == desired.fleet.objects:
            return desired
        return Desired.of(desired.checkout, desired.loaded, fleet, self.model_facts, desired)

    def noted(self) -> NotedRevision | None:
        self._noted = self._together.noted() if self._together else None
        self._fleet = self._fleet or (self._noted.name if self._noted else "")
        return self._noted

    def acceptance(self) -> Acceptance:
        """Beside agents alone, each of them is asked for itself."""
        if self._together is None or not self._fleet:
            return Acceptance(command="")
        from reconciler.kube.accepted import COMMAND

        return Acceptance(COMMAND.format(fleet=self._fleet), partial(self._accepts, self._together))

    def _accepts(self, together: Together, head: str) -> bool:
        self._is_let_in = together.accepts(self._fleet, head)
        return self._is_let_in

    def observe(self, desired: Desired) -> Observation:
        observed = self._together.observe(desired) if self._together else super().observe(desired)
        self._agents.ask_left(desired.since.left_nodes(observed))
        return observed

    def make_plan(
        self, desired: Desired, observed: Observation, confirmed: Iterable[str], before: Before
    ) -> Plan:
        if self._together:
            plan = self._together.plan(desired, observed, confirmed, before)
        else:
            plan = super().make_plan(desired, observed, confirmed, before)
        return replace(
            plan, blocked=(*plan.blocked, *left.blocked(self._agents.left, desired.fleet))
        )

    def apply(self, plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]:
        if self._together:
            changes = changes_to_apply(plan, hold_removals=hold_removals)
            return self._together.apply(plan, changes)
        return super().apply(plan, hold_removals=hold_removals)


class CentralDelegate(FleetDelegate):
    """Of the loop that follows a fleet beside its agents, and applies to the clusters."""

    def __init__(
        self,
        console: ArrivalConsole,
        in_cluster: Callable[[Fleet], Fleet],
        facts: CachedFacts,
        clusters: ClusterWiring | None,
    ) -> None:
        super().__init__(console.agents, in_cluster, facts, clusters.together if clusters else None)
        self._console = console
        self._clusters = clusters

    def apply_overrides(self, fleet: Fleet) -> Fleet:
        fleet = super().apply_overrides(fleet)
        if not self._agents.states:
            self._agents.observe()
        return as_told(fleet, self._agents)

    def on_fetched(self, following: Following) -> None:
        if self._clusters:
            name = self._noted.name if self._noted else ""
            self._clusters.operator.on_fetched(following, name)

    def on_revision(self, desired: Desired) -> None:
        if self._clusters:
            if self._is_let_in:
                self._is_let_in = False
                self._clusters.together.withdraw(self._fleet)
            self._clusters.operator.on_revision(desired)
        self._console.on_revision(desired)

    def on_pass(self, seconds: float) -> None:
        if self._clusters:
            self._clusters.on_pass(seconds)
