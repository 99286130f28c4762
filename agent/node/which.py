"""Which node of its fleet this machine is."""

from __future__ import annotations

import platform
from pathlib import Path

from agent.state.directory import StateDir
from agent.state.node_name import remembered_node
from reconciler.api.errors import InvalidFleet, UsageError
from reconciler.api.fleetnode import FleetNode
from reconciler.fleet.fleet import Fleet
from reconciler.loop.journal import SourceJournal
from reconciler.loop.revisions import no_fleet_at
from reconciler.source.checkout import Source
from reconciler.source.history import Applied, PeekedHistory
from reconciler.source.load import Reader


def node_of_fleet(root: Path, source: Source) -> str | None:
    """The node that this machine is, where what it applied last is a revision of this fleet."""
    name = remembered_node(root)
    return name if name and _journal(root, source).knows_this_fleet else None


def applied_here(root: Path, source: Source) -> Applied | None:
    """The record of the revision of this source that this machine applied last."""
    return _journal(root, source).last


def _journal(root: Path, source: Source) -> SourceJournal:
    history = PeekedHistory(StateDir(root.absolute()).desired / "history.json")
    return SourceJournal(history, source)


def choose_node(fleet: Fleet, given: str | None) -> str:
    """The agent node that this machine is: as given, the only one, or the one of this host's name.

    Raises UsageError with the names there are.
    """
    names = [n.metadata.name for n in fleet.all(FleetNode) if n.spec.agent is not None]
    if given:
        if given in names:
            return given
        raise UsageError(
            f"node {given}: the fleet has no agent node of that name; {_has(names)} (the word"
            " behind --local is its node: --local alone comes last)"
        )
    if len(names) == 1:
        return names[0]
    host = platform.node().lower()
    for name in (host, host.partition(".")[0]):
        if name in names:
            return name
    raise UsageError(
        "which node is this machine? Say its name with --local=NODE, or --node NAME of fleet-agent;"
        f" {_has(names)}"
    )


def which_node(
    given: str | None, source: Source, journal: SourceJournal, root: Path, read: Reader
) -> str:
    """The node that the fleet names; the one before where the fleet cannot be read now, or lost
    it."""
    before = remembered_node(root)
    try:
        fleet = _newest_fleet(source, journal, read)
        if not fleet.objects:
            raise UsageError(no_fleet_at(source))
        return choose_node(fleet, given)
    except Exception as error:
        # A revision that ends in a defect of ours is held by the loop: this machine stays what it
        # is, and its agent starts what it ran.
        known = given or before
        if known is None or (isinstance(error, UsageError) and known != before):
            raise
        return known


def _newest_fleet(source: Source, journal: SourceJournal, read: Reader) -> Fleet:
    """A fleet to look the node up in: the newest valid one, else the last that was applied."""
    failure: Exception
    try:
        loaded = read(source.fetch(), journal.held_paths())
        if loaded.fleet is not None:
            return loaded.fleet
        failure = InvalidFleet(loaded.problems)
    except Exception as error:  # noqa: BLE001 - the last revision may do
        failure = error
    checkout = journal.last_good()
    known = read(checkout, frozenset()).fleet if checkout else None
    if known is None:
        raise failure
    return known


def _has(names: list[str]) -> str:
    return f"it has {', '.join(names)}" if names else "it has no agent node: add a FleetNode"
