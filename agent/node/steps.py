"""The steps of the loop of one node: who owns it, and who only looks at it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.node.disk import DeclaredModels
from agent.node.view import RecordedNode
from agent.state.suspended import note_suspended
from agent.state.undone import note_undone, undone_of
from reconciler.agents.remedy import ends_what_runs
from reconciler.api.errors import StateInUse
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.core.observation import Observation
from reconciler.core.plan import Plan
from reconciler.core.prune import Before
from reconciler.core.target import Outcome, Target, apply_plan
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import model_file, with_companions
from reconciler.loop import Gate, Listener, Steps, steps_of
from reconciler.loop.desired import NOTHING_REFUSED, CachedFacts, Desired
from reconciler.models.headers import Headers, first_known
from reconciler.models.policy import context_of
from reconciler.models.sources import hosts_of
from reconciler.placement.overrides import Overlay
from reconciler.source.bundle import BundleSource
from reconciler.source.checkout import Source

if TYPE_CHECKING:
    from agent.node.local import LocalAgent

_log = logging.getLogger(__name__)
_ANEW = (
    "the state directory was gone, or another was in its place: what this agent knows is written"
    " into it again, and models are fetched before they are started again; logs, measurements and"
    " TLS files that lay there are lost"
)


def node_steps(
    name: str, target: Target, overlay: Overlay, facts: CachedFacts, headers: Headers | None
) -> Steps:
    """The steps of a loop that plans for one node, whether or not it may change it. `headers`: what
    is known of models that are not here."""

    def plan(
        desired: Desired, observed: Observation, confirmed: Iterable[str], before: Before
    ) -> Plan:
        refused = headers.refused() if headers else NOTHING_REFUSED
        return desired.plan(observed, confirmed, before, refused)

    def hold_reason(fleet: Fleet, before: Before) -> str | None:
        return unknown_node(fleet, name, before)

    steps = steps_of(target, facts)
    return replace(steps, overlay=overlay, plan=plan, gate=Gate(hold_reason=hold_reason))


def recorded_steps(
    name: str, node: RecordedNode, overlay: Overlay, headers: Headers | None
) -> Steps:
    """Steps of a loop that only compares: nothing here locks, starts, stops or writes."""
    facts = first_known(node.facts, headers.facts) if headers else node.facts

    def follow(desired: Desired) -> None:
        node.disk.follow(_keeps(desired))
        node.handover.follow(desired.fleet)
        if stated := _stated(desired, name):
            node.memory.follow(stated)

    return replace(node_steps(name, node, overlay, facts, headers), follow=follow)


class AgentSteps(Listener):
    """The steps of the agent that owns the node; it listens for what has converged, to remove the
    models that nothing needs any more. `busy` says why the source is in the middle of something;
    `save` writes what is known into a state directory that was made anew; `end` ends the loop."""

    def __init__(
        self,
        name: str,
        agent: LocalAgent,
        overlay: Overlay,
        source: Source,
        busy: Callable[[], str | None],
        save: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self.overlay = overlay
        self._name = name
        self._agent = agent
        self._source = source
        self._busy = busy
        self._save, self._end = save, end
        self._is_saved = True
        self._suspended: tuple[ObjectRef, ...] = ()

    def steps(self) -> Steps:
        agent = self._agent
        common = node_steps(self._name, agent.target, self.overlay, agent.facts, agent.headers)
        return replace(
            common,
            prepare=self._prepare,
            follow=self._follow,
            apply=self._apply,
            gate=replace(common.gate, busy_reason=self._busy),
        )

    def on_converged(self, desired: Desired) -> None:
        self._agent.settled(_declared(desired))

    def _prepare(self) -> None:
        """The state directory may have been removed, or replaced, under us."""
        state = self._agent.state
        try:
            is_new = state.keep()
        except StateInUse as error:
            _log.error("%s; this agent ends, and leaves what runs to that one", error)
            self._end()
            raise
        if is_new:
            self._is_saved = False
            _log.warning("%s: %s", state.root, _ANEW)
        self._agent.processes.mend_records()
        if not self._is_saved:
            self._save()
            note_suspended(state, self._suspended)
            self._is_saved = True

    def _follow(self, desired: Desired) -> None:
        if not desired.fleet.incomplete:
            self._agent.by_hand.declared(desired.fleet.origins)  # also of what is held
        self._agent.handover.follow(desired.fleet)
        self._agent.stated(_stated(desired, self._name))
        self._agent.disk.follow(_keeps(desired))
        here = [w for w in desired.assignment.workloads if w.node == self._name]
        self._suspended = tuple(w.ref for w in here if w.suspended)
        self._agent.admission.suspend(self._suspended)
        note_suspended(self._agent.state, self._suspended)
        self._agent.follow(
            context_of(
                desired.fleet,
                hosts_of,
                open_repository=desired.checkout.open,
                list_repository=desired.checkout.folder,
                beside=self._source.beside if isinstance(self._source, BundleSource) else None,
            )
        )

    def _apply(self, plan: Plan, *, hold_removals: bool) -> tuple[Outcome, ...]:
        target = self._agent.target
        self._agent.waiting.admit(plan)
        outcomes = apply_plan(plan, target, hold_removals=hold_removals)
        undone = undone_of(plan.blocked, outcomes)
        target.undone = tuple(u for u in undone if not u.is_blocked)
        note_undone(self._agent.state, undone)
        return outcomes


def _stated(desired: Desired, name: str) -> FleetNode | None:
    return desired.fleet.get(FleetNode, ObjectRef("FleetNode", "", name))


def _declared(desired: Desired) -> DeclaredModels:
    fleet = desired.fleet
    models = with_companions(model_file(model, fleet) for model in fleet.all(Model))
    return DeclaredModels(fleet.revision, models, fleet.policy.keep_revisions)


def _keeps(desired: Desired) -> DeclaredModels | None:
    """None where what is held may need more than what is declared."""
    incomplete = desired.fleet.incomplete or desired.loaded.errors
    return None if incomplete else _declared(desired)


def unknown_node(fleet: Fleet, node: str, before: Before) -> str | None:
    """Why a fleet without this node is held: it cannot mean this machine, or the machine has left
    it, and then a person ends what runs there."""
    names = {n.metadata.name for n in fleet.all(FleetNode)}
    if node in names:
        return None
    message = f"{fleet.revision[:12]} has no FleetNode {node}{_there(names)}: held, as it runs."
    another = "If this machine is another node now, say which: --local=NODE, or --node NODE of"
    if before.revision is not None and node in before.nodes:
        return (
            f"{message} {before.revision[:12]} declared it. If this machine left the fleet,"
            f" {ends_what_runs('here')}; if not, put its FleetNode back. {another} fleet-agent"
        )
    return (
        f"{message} {another} fleet-agent. If what runs here as {node} is another fleet's and is to"
        " stay, give this fleet a state directory of its own: --state-dir DIR"
    )


def _there(names: Collection[str]) -> str:
    return f" (it has {', '.join(sorted(names))})" if names else ""
