"""This machine as the target: the only room that knows the agent, and imports it late."""

from __future__ import annotations

import argparse
import contextlib
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.fleetnode import FleetNode
from reconciler.cli.fleet import choose_node, reader
from reconciler.cli.options import LOCAL_ANYHOW
from reconciler.errors import InvalidFleet, ReconcilerError, UsageError
from reconciler.fleet import Fleet
from reconciler.plan import Change, Observation, TargetState
from reconciler.source.checkout import Source
from reconciler.source.load import Loaded
from reconciler.target import Outcome, Result
from reconciler.workload import Workload

if TYPE_CHECKING:
    from agent.local import LocalAgent
    from agent.view import RecordedNode
    from reconciler.journal import SourceJournal
    from reconciler.loop import Wake


def programs(args: argparse.Namespace) -> dict[str, str]:
    return {"llama-server": args.llama_server} if args.llama_server else {}


def root_of(args: argparse.Namespace) -> Path:
    from agent.local import state_root

    return state_root(args.state_dir)


def node_of(args: argparse.Namespace, fleet: Fleet) -> str:
    """The node that this machine is. Raises UsageError."""
    return choose_node(fleet, args.local or None, platform.node())


def look_at(args: argparse.Namespace, node: str) -> RecordedNode:
    """The node as its records show it; nothing can be changed through it."""
    from agent.local import recorded_node

    return recorded_node(node, root_of(args), programs(args))


@dataclass(slots=True)
class Local:
    """A node that this process owns, and what the loop needs beside its target."""

    node: str
    agent: LocalAgent
    journal: SourceJournal

    def accepts(self, loaded: Loaded) -> str | None:
        """Why a valid revision is held: it does not know this node, so it cannot mean it."""
        return _does_not_know(loaded, self.node)


def held_here(args: argparse.Namespace, loaded: Loaded) -> str | None:
    """Why this machine would hold a valid revision: it was a node before that is gone from it."""
    before = remembered_node(args)
    if before is None or args.local not in (LOCAL_ANYHOW, before):
        return None
    return _does_not_know(loaded, before)


def _does_not_know(loaded: Loaded, node: str) -> str | None:
    assert loaded.fleet is not None
    names = {n.metadata.name for n in loaded.fleet.all(FleetNode)}
    if not loaded.fleet.objects:
        return f"{loaded.fleet.revision[:12]} holds no fleet document: held, as it runs"
    if node not in names:
        return f"{loaded.fleet.revision[:12]} has no FleetNode {node}: held, as it runs"
    return None


@contextlib.contextmanager
def owned(
    args: argparse.Namespace, source: Source, wake: Wake, *, stop_children: bool
) -> Iterator[Local]:
    """Be the agent of this machine for a while. Raises StateError when another process is."""
    from agent.local import LocalAgent
    from agent.state import StateDir
    from reconciler.journal import SourceJournal
    from reconciler.source.history import HistoryFile

    state = StateDir.open(root_of(args))
    journal = SourceJournal(HistoryFile(state.desired / "history.json"), source)
    node = _which_node(args, source, journal)
    agent = LocalAgent(node, state.root, programs(args), changed=wake.look)
    agent.start()
    _node_file(args).write_text(node)
    try:
        yield Local(node, agent, journal)
    finally:
        agent.close(stop_children=stop_children)


def remembered_node(args: argparse.Namespace) -> str | None:
    """The node that this machine was the last time; None before the first."""
    file = _node_file(args)
    return file.read_text() if file.is_file() else None


def _node_file(args: argparse.Namespace) -> Path:
    return root_of(args) / "desired" / "node"


def _which_node(args: argparse.Namespace, source: Source, journal: SourceJournal) -> str:
    """As the fleet says; where it cannot be read now, or lost the node, as it was before."""
    before = remembered_node(args)
    try:
        return node_of(args, _newest_fleet(source, journal))
    except ReconcilerError as error:
        known = args.local or before
        if known is None or (isinstance(error, UsageError) and known != before):
            raise
        return known


def _newest_fleet(source: Source, journal: SourceJournal) -> Fleet:
    """A fleet to look the node up in: the newest valid one, else the last that was applied."""
    failure: ReconcilerError
    try:
        loaded = reader()(source.fetch(), journal.held_paths())
        if loaded.fleet is not None:
            return loaded.fleet
        failure = InvalidFleet(loaded.problems)
    except ReconcilerError as error:
        failure = error
    checkout = journal.last_good()
    known = reader()(checkout, frozenset()).fleet if checkout else None
    if known is None:
        raise failure
    return known


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
