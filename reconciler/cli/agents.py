"""From the command line's words to the agents of a fleet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.agents.nodes import AgentNodes
    from reconciler.desired import Desired
    from reconciler.fleet import Fleet


def open_agents(args: argparse.Namespace, fleet: Fleet | None = None) -> AgentNodes:
    """All agents of the fleet. Raises UsageError for a file that is not there."""
    from reconciler.agents.credentials import Credentials
    from reconciler.agents.lastseen import LastSeen
    from reconciler.agents.nodes import AgentNodes
    from reconciler.source.open import cache_dir

    if (args.agent_key_file is not None) and args.agent_cert_file is None:
        raise UsageError("--agent-key-file goes with --agent-cert-file")
    credentials = Credentials(
        token_file=_there(args.agent_token_file, "--agent-token-file"),
        ca_file=_there(args.ca_file, "--ca-file"),
        cert_file=_there(args.agent_cert_file, "--agent-cert-file"),
        key_file=_there(args.agent_key_file, "--agent-key-file"),
    )
    agents = AgentNodes(credentials, LastSeen(cache_dir() / "agents.json"))
    if fleet is not None:
        agents.follow(fleet)
    return agents


def as_told(fleet: Fleet, agents: AgentNodes) -> Fleet:
    """The fleet with what people said on the machines themselves, where it leaves that open: what
    is planned from it is what the agents plan."""
    from agent import overlay

    said = {state.node: state.said for state in agents.states.values() if state.said}
    return overlay.as_told(fleet, said)


def desired_as_told(desired: Desired, agents: AgentNodes) -> Desired:
    """The same revision, decided as the agents decide it."""
    from reconciler.desired import Desired, no_facts

    fleet = as_told(desired.fleet, agents)
    if fleet is desired.fleet:
        return desired
    return Desired.of(desired.checkout, desired.loaded, fleet, no_facts, desired)


def _there(given: str | None, option: str) -> Path | None:
    if not given:
        return None
    path = Path(given).expanduser()
    if not path.exists():
        raise UsageError(f"{option} {given}: there is no such file")
    return path
