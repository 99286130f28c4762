"""From the command line's words to the agents of a fleet."""

from __future__ import annotations

import argparse
from functools import lru_cache
from typing import TYPE_CHECKING

from reconciler.api.errors import SourceError

if TYPE_CHECKING:
    from reconciler.agents.left import OurFleet
    from reconciler.agents.nodes import AgentNodes
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
    if not isinstance(source, Historied):
        return OurFleet(fleet_of(source), root)
    history = source

    @lru_cache  # many nodes are on one revision, and what is no ancestor never will be
    def is_ancestor(older: str, newer: str) -> bool:
        try:
            return history.is_ancestor(older, newer)
        except SourceError:  # what cannot be looked at is not known to be ours
            return False

    return OurFleet(fleet_of(source), root, is_ancestor)
