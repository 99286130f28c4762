"""Look at what runs, here or on every agent node, beside what should run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Protocol

from reconciler.agents.arrival import Verdicts
from reconciler.agents.verdicts import verdicts_of
from reconciler.cli import local
from reconciler.cli.agents import desired_as_told, open_agents
from reconciler.cli.clusters import clusters_of, must_have_name, open_together
from reconciler.desired import Desired
from reconciler.plan import Observation
from reconciler.report.status import Declared, Status
from reconciler.workload import Workload


class Looker(Protocol):
    def look(self, desired: Desired) -> Status:
        """What runs now, beside what this revision wants."""


def looker(args: argparse.Namespace) -> Looker:
    """At this machine with --local, else at every agent node of the fleet, and every --cluster."""
    if args.local is not None:
        return _Here(args)
    return _WithClusters(args) if clusters_of(args) else _Everywhere(args)


class _Here:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    def look(self, desired: Desired) -> Status:
        node = local.node_of(self._args, desired.fleet)
        here = local.look_at(self._args, node, desired.fleet)
        observed = here.observe(desired.assignment.workloads)
        return Status(observed, _declared(desired, node, observed, {}), {}, desired.fleet.revision)


class _Everywhere:
    """Agents are remembered between two looks: what did not change is not sent again."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._agents = open_agents(args)

    def look(self, desired: Desired) -> Status:
        self._agents.follow(desired.fleet)
        observed = self._agents.observe()
        desired = desired_as_told(desired, self._agents)
        states = self._agents.states
        verdicts = {target: verdicts_of(state) for target, state in states.items()}
        declared = _declared(desired, None, observed, verdicts)
        return Status(observed, declared, states, desired.fleet.revision)


class _WithClusters:
    """The agents and the clusters that are named, at the same time."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._agents = open_agents(args)
        self._together = open_together(args, self._agents)

    def look(self, desired: Desired) -> Status:
        must_have_name(desired.fleet)
        self._agents.follow(desired.fleet)
        self._together.follow(desired)
        observed = self._together.observe()
        desired = desired_as_told(desired, self._agents)
        states = self._agents.states
        verdicts = {target: verdicts_of(state) for target, state in states.items()}
        declared = _declared(desired, None, observed, verdicts)
        return Status(observed, declared, states, desired.fleet.revision)


def _declared(
    desired: Desired, node: str | None, observed: Observation, verdicts: Mapping[str, Verdicts]
) -> tuple[Declared, ...]:
    """What should run, there or anywhere; what cannot, with the reason."""
    held = [
        Declared(ref, h.finding.rule, h.finding.message, on, _cluster(desired, on))
        for h in desired.assignment.held
        if node is None or not h.nodes or node in h.nodes
        for ref in h.services
        for on in (*sorted(h.nodes),) or (None,)
        if node is None or on in (None, node)
    ]
    held = [d for d in held if d.cluster is None or d.target in observed.targets]
    refs = {d.ref for d in held}
    placed = [
        _placed(workload, observed, verdicts)
        for workload in desired.assignment.workloads
        if node in (None, workload.node) and not workload.suspended and workload.ref not in refs
        if workload.cluster is None
        or workload.target in observed.targets  # else nobody asked for it
    ]
    return (*placed, *held)


def _placed(
    workload: Workload, observed: Observation, verdicts: Mapping[str, Verdicts]
) -> Declared:
    """Why a service that has a node may not run there, as far as that is known."""
    target = workload.target
    state = observed.targets.get(target)
    verdict = verdicts.get(target, {}).get(workload.ref)
    reason, message = "NotRunning", ""
    if state is not None and not state.reachable:
        reason = "Unknown"
    elif verdict is not None:
        reason, message = verdict
    elif state is not None and state.keeps_stopped(workload):
        reason, message = "StoppedByHand", f"`fleet-agent restart {workload.ref.name}` starts it"
    elif state is not None and workload.runtime in state.missing:
        reason, message = "EngineMissing", state.missing[workload.runtime]
    return Declared(workload.ref, reason, message, workload.node, workload.cluster)


def _cluster(desired: Desired, node: str | None) -> str | None:
    """The cluster that a FleetNode is a pool of."""
    kind, _, name = desired.target(node).partition("/") if node else ("", "", "")
    return name if kind == "cluster" else None
