"""The steps of loops over a whole fleet: every agent, and the clusters that are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.agents import left
from reconciler.cli.clusters import must_have_name
from reconciler.core.target import apply_plan, changes_to_apply
from reconciler.loop import Gate, Listener, Steps
from reconciler.loop.desired import CachedFacts, Desired
from reconciler.placement.overrides import with_overrides
from reconciler.source.verdict import Acceptance

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.core.prune import Before
    from reconciler.core.target import Outcome
    from reconciler.fleet.fleet import Fleet
    from reconciler.kube.together import Together
    from reconciler.source.history import NotedRevision


class FleetSteps(Listener):
    """`in_cluster` fills in which cluster a pool is in; `together` is there where clusters are
    named. It listens in the loop that applies: a head that a person let in is let in once."""

    def __init__(
        self,
        agents: AgentNodes,
        in_cluster: Callable[[Fleet], Fleet],
        facts: CachedFacts,
        together: Together | None,
        noted_here: Callable[[], NotedRevision | None],
    ) -> None:
        """`noted_here`: the commit that this machine's agent has applied."""
        self._noted_here = noted_here
        self._agents = agents
        self._in_cluster = in_cluster
        self._facts = facts
        self._together = together
        self._fleet = ""  # its name, once it is known
        self._is_let_in = False  # a head that would be held is followed next

    def comparing(self) -> Steps:
        """Steps of a loop that only compares: its first plan is made after the agents were
        observed."""
        return Steps(
            observe=self._observe,
            apply=self._apply,
            plan=self._plan,
            facts=self._facts,
            overlay=self._overlay,
            agent_overlay=self._agent_overlay,
            gate=Gate(noted=self._noted, acceptance=self._acceptance),
        )

    def applying(self) -> Steps:
        """Steps of the loop that follows a fleet beside its agents, and applies to the clusters."""
        return replace(self.comparing(), overlay=self._agents_first)

    def on_followed(self, desired: Desired) -> None:
        if self._together and self._is_let_in:
            self._is_let_in = False
            self._together.withdraw(self._fleet)

    def _overlay(self, fleet: Fleet) -> Fleet:
        if self._together:
            self._fleet = must_have_name(fleet)
        fleet = self._in_cluster(fleet)
        self._agents.follow(fleet)
        return fleet

    def _agents_first(self, fleet: Fleet) -> Fleet:
        fleet = self._overlay(fleet)
        if not self._agents.states:
            self._agents.observe()
        return self._as_agents_see(fleet)

    def _agent_overlay(self, desired: Desired) -> Desired:
        """Decided as the agents decide it. It begins with what was read: what an agent took back is
        not in that."""
        stated = desired.loaded.fleet
        fleet = self._in_cluster(stated) if stated else desired.fleet
        fleet = self._as_agents_see(fleet)
        if fleet.objects == desired.fleet.objects:
            return desired
        return Desired.of(desired.checkout, desired.loaded, fleet, self._facts, desired)

    def _as_agents_see(self, fleet: Fleet) -> Fleet:
        """The fleet with what is stated on the machines themselves, where the fleet leaves it open:
        what is planned from it is what the agents plan."""
        own = {s.node: s.overrides for s in self._agents.states.values() if s.overrides}
        return with_overrides(fleet, own)

    def _noted(self) -> NotedRevision | None:
        noted = self._together.noted() if self._together else self._noted_here()
        self._fleet = self._fleet or (noted.name if noted else "")
        return noted

    def _acceptance(self) -> Acceptance:
        """Beside agents alone, each of them is asked for itself."""
        if self._together is None or not self._fleet:
            return Acceptance(command="")
        from reconciler.kube.accepted import COMMAND

        return Acceptance(COMMAND.format(fleet=self._fleet), partial(self._accepts, self._together))

    def _accepts(self, together: Together, head: str) -> bool:
        self._is_let_in = together.accepts(self._fleet, head)
        return self._is_let_in

    def _observe(self, desired: Desired) -> Observation:
        if self._together:
            observed = self._together.observe(desired)
        else:
            observed = self._agents.observe(desired.assignment.workloads)
        self._agents.ask_left(desired.since.left_nodes(observed))
        return observed

    def _plan(
        self, desired: Desired, observed: Observation, confirmed: Iterable[str], before: Before
    ) -> Plan:
        make = self._together.plan if self._together else Desired.plan
        plan = make(desired, observed, confirmed, before)
        gone = left.blocked(self._agents.left, desired.fleet)
        return replace(plan, blocked=(*plan.blocked, *gone))

    def _apply(self, plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]:
        if self._together:
            changes = changes_to_apply(plan, hold_removals=hold_removals)
            return self._together.apply(plan, changes)
        return apply_plan(plan, self._agents, hold_removals=hold_removals)
