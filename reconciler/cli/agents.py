"""From the command line's words to the agents of a fleet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.agents.left import OurFleet
    from reconciler.agents.nodes import AgentNodes
    from reconciler.fleet.fleet import Fleet
    from reconciler.source.checkout import Source


def open_agents(args: argparse.Namespace, source: Source) -> AgentNodes:
    """All agents of the fleet, and this machine's node among them, whether or not it can be asked.
    Raises UsageError for a file that is not there."""
    from reconciler.agents.lastseen import LastSeen
    from reconciler.agents.nodes import AgentNodes
    from reconciler.cli.local import node_here
    from reconciler.console.shared import credentials_of
    from reconciler.source.open import cache_dir

    last_seen = LastSeen(cache_dir() / "agents.json")
    here = node_here(args, source)
    return AgentNodes(credentials_of(args), last_seen, here=here, ours=_ours(source))


def _ours(source: Source) -> OurFleet:
    from reconciler.agents.left import OurFleet
    from reconciler.source.checkout import Committed, Historied, fleet_of

    root = source.root if isinstance(source, Committed) else ""
    return OurFleet(
        fleet_of(source), root, source.is_ancestor if isinstance(source, Historied) else None
    )


def as_told(fleet: Fleet, agents: AgentNodes) -> Fleet:
    """The fleet with what people said on the machines themselves, where it leaves that open: what
    is planned from it is what the agents plan."""
    from agent.node import overlay
    from reconciler.api.nodestate import NodeOverrides

    said = {s.node: s.said for s in agents.states.values() if s.said and s.said != NodeOverrides()}
    return overlay.as_told(fleet, said) if said else fleet
