"""This machine as the target: the only room that knows the agent, and imports it late."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reconciler.api.fleetnode import FleetNode
from reconciler.cli.options import LOCAL_ANYHOW
from reconciler.fleet import Fleet
from reconciler.plan import Change, Observation, TargetState
from reconciler.source.load import Loaded
from reconciler.target import Outcome, Result
from reconciler.workload import Workload

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.view import RecordedNode


def settings(args: argparse.Namespace) -> Settings:
    """What the command line says of this machine."""
    from agent.local import state_root
    from agent.settings import Settings

    programs = {"llama-server": args.llama_server} if args.llama_server else {}
    return Settings(root=state_root(args.state_dir), programs=programs)


def node_of(args: argparse.Namespace, fleet: Fleet) -> str:
    """The node that this machine is. Raises UsageError."""
    from agent.node import choose_node

    return choose_node(fleet, args.local or None)


def look_at(args: argparse.Namespace, node: str) -> RecordedNode:
    """The node as its records show it; nothing can be changed through it."""
    from agent.local import recorded_node

    return recorded_node(node, settings(args))


def held_here(args: argparse.Namespace, loaded: Loaded) -> str | None:
    """Why this machine would hold a valid revision: it was a node before that is gone from it."""
    before = remembered_node(args)
    if before is None or args.local not in (LOCAL_ANYHOW, before):
        return None
    from agent.node import does_not_know

    return does_not_know(loaded, before)


def remembered_node(args: argparse.Namespace) -> str | None:
    """The node that this machine was the last time; None before the first."""
    from agent import node

    return node.remembered_node(settings(args).root)


class AgentNodes:
    """Every agent node of the fleet, as this version sees them from elsewhere: not at all."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """Unreachable, with the reason: nothing may be concluded from what is absent."""
        targets = {}
        for node in self._fleet.all(FleetNode):
            if node.spec.agent is None:
                continue
            url = node.spec.agent.url
            why = "no url is stated" if url is None else f"{url}: not asked by this version"
            target = f"node/{node.metadata.name}"
            targets[target] = TargetState(target, reachable=False, message=why)
        return Observation(targets, ())

    def apply(self, change: Change) -> Outcome:
        return Outcome(change, Result.SKIPPED, "agents pull; nobody tells them what to run")
