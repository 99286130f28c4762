"""This machine as the target: the only room that knows the agent, and imports it late."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.cli.options import LOCAL_ANYHOW
from reconciler.fleet import Fleet
from reconciler.option import programs_of
from reconciler.source.load import Loaded

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.view import RecordedNode


def settings(args: argparse.Namespace) -> Settings:
    """What the command line says of this machine."""
    from agent.local import state_root
    from agent.settings import Settings

    return Settings(
        root=state_root(args.state_dir),
        programs=programs_of(args),
        api_key_file=args.api_key_file,
        service_ports=args.service_ports,
    )


def node_of(args: argparse.Namespace, fleet: Fleet) -> str:
    """The node that this machine is. Raises UsageError."""
    from agent.node import choose_node

    return choose_node(fleet, args.local or None)


def look_at(args: argparse.Namespace, node: str, fleet: Fleet | None = None) -> RecordedNode:
    """The node as its records show it, and as this fleet states it; nothing can be changed through
    it."""
    from agent.local import recorded_node

    found = recorded_node(node, settings(args))
    stated = fleet.get(FleetNode, ObjectRef("FleetNode", "", node)) if fleet else None
    if stated is not None:
        found.memory.follow(stated)
    return found


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
