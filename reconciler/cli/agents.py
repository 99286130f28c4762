"""From the command line's words to the agents of a fleet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.desired import Desired
    from reconciler.fleet import Fleet


def open_agents(args: argparse.Namespace, fleet: Fleet | None = None) -> AgentNodes:
    """All agents of the fleet. Raises UsageError for a file that is not there."""
    from reconciler.agents.lastseen import LastSeen
    from reconciler.agents.nodes import AgentNodes
    from reconciler.option import credentials_of
    from reconciler.source.open import cache_dir

    agents = AgentNodes(credentials_of(args), LastSeen(cache_dir() / "agents.json"))
    if fleet is not None:
        agents.follow(fleet)
    return agents


def as_told(fleet: Fleet, agents: AgentNodes) -> Fleet:
    """The fleet with what people said on the machines themselves, where it leaves that open: what
    is planned from it is what the agents plan."""
    from agent import overlay
    from reconciler.api.nodestate import Said

    said = {s.node: s.said for s in agents.states.values() if s.said and s.said != Said()}
    return overlay.as_told(fleet, said) if said else fleet


def desired_as_told(desired: Desired, agents: AgentNodes) -> Desired:
    """The same revision, decided as the agents decide it."""
    from reconciler.desired import Desired, no_facts

    fleet = as_told(desired.fleet, agents)
    if fleet is desired.fleet:
        return desired
    return Desired.of(desired.checkout, desired.loaded, fleet, no_facts, desired)
