"""One machine's agent, wired: a source, the loop that follows it, and the processes it keeps."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.local import LocalAgent
from agent.overlay import Overlay
from agent.settings import Settings
from agent.state import StateDir, atomic_write
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.desired import Desired
from reconciler.errors import InvalidFleet, ReconcilerError, UsageError
from reconciler.fleet import Fleet
from reconciler.journal import SourceJournal
from reconciler.loop import Loop, Reporter, Timing, Wake
from reconciler.models.scheme import FetchContext
from reconciler.source.bundle import BundleSource
from reconciler.source.checkout import Source
from reconciler.source.history import HistoryFile
from reconciler.source.load import Loaded, Reader, reader
from reconciler.source.slice import slice_reader
from reconciler.workload import model_file


@dataclass(frozen=True, slots=True)
class Following:
    """How a node follows its source. `busy` says why the source is in the middle of something;
    `strict` follows no head that does not build on the applied one. `own_slice`: errors elsewhere
    in the fleet stop nothing here (reconciler.source.slice); else one with any is refused whole."""

    timing: Timing = field(default_factory=Timing)
    strict: bool = False
    own_slice: bool = False
    confirmed: frozenset[str] = frozenset()
    busy: Callable[[], str | None] = lambda: None
    read: Reader = field(default_factory=reader)


@dataclass(slots=True)
class Node:
    """A node that this process owns: `loop.run()` keeps it equal to its source."""

    name: str
    agent: LocalAgent
    journal: SourceJournal
    loop: Loop
    settings: Settings


@contextlib.contextmanager
def owned(
    source: Source,
    given: str | None,
    settings: Settings,
    wake: Wake,
    report: Reporter,
    following: Following,
    *,
    stop_children: bool = False,
) -> Iterator[Node]:
    """Be the agent of this machine for a while; `given` is the name of its FleetNode, where a
    person said it. Raises StateError when another process is, UsageError for a name that is not
    there."""
    state = StateDir.open(settings.root)
    history = HistoryFile(state.desired / "history.json")
    journal = SourceJournal(history, source, strict=following.strict)
    name = _which_node(given, source, journal, settings.root, following.read)
    agent = LocalAgent(name, settings, changed=wake.look)
    agent.start()
    try:
        if name != remembered_node(settings.root):  # else a full disk does not matter here
            atomic_write(_name_file(settings.root), name.encode())
        adjusts = Overlay(name, settings)
        loop = _loop(name, agent, journal, source, wake, report, following, adjusts)
        yield Node(name, agent, journal, loop, settings)
    finally:
        agent.close(stop_children=stop_children)


def choose_node(fleet: Fleet, given: str | None) -> str:
    """The agent node that this machine is: as given, the only one, or the one of this host's name.

    Raises UsageError with the names there are.
    """
    names = [n.metadata.name for n in fleet.all(FleetNode) if n.spec.agent is not None]
    if given:
        if given in names:
            return given
        raise UsageError(f"node {given}: the fleet has no agent node of that name; {_has(names)}")
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


def remembered_node(root: Path) -> str | None:
    """The node that this machine was the last time; None before the first."""
    file = _name_file(root)
    return (file.read_text() or None) if file.is_file() else None


def does_not_know(loaded: Loaded, node: str) -> str | None:
    """Why a valid revision is held: it does not know this node, so it cannot mean it."""
    assert loaded.fleet is not None
    names = {n.metadata.name for n in loaded.fleet.all(FleetNode)}
    if not loaded.fleet.objects:
        return f"{loaded.fleet.revision[:12]} holds no fleet document: held, as it runs"
    if node not in names:
        return f"{loaded.fleet.revision[:12]} has no FleetNode {node}: held, as it runs"
    return None


def _loop(
    name: str,
    agent: LocalAgent,
    journal: SourceJournal,
    source: Source,
    wake: Wake,
    report: Reporter,
    following: Following,
    adjusts: Overlay,
) -> Loop:
    def follow(desired: Desired) -> None:
        if not desired.fleet.incomplete:
            agent.by_hand.declared(desired.fleet.origins)  # also of what is held
        agent.handover.follow(desired.fleet)
        agent.stated(desired.fleet.get(FleetNode, ObjectRef("FleetNode", "", name)))
        policy = desired.fleet.policy
        agent.target.context = FetchContext(
            allowed_hosts=policy.allowed_hosts,
            mirrors=policy.mirrors,
            open_repository=desired.checkout.open,
            list_repository=desired.checkout.folder,
            beside=source.beside if isinstance(source, BundleSource) else None,
        )

    def settled(desired: Desired) -> None:
        fleet = desired.fleet
        models = [model_file(model, fleet) for model in fleet.all(Model)]
        agent.settled(fleet.revision, models, fleet.policy.keep_revisions)

    return Loop(
        source=source,
        read=slice_reader(name, lambda: journal.last) if following.own_slice else following.read,
        target=agent.target,
        journal=journal,
        report=report,
        wake=wake,
        timing=following.timing,
        cached=agent.facts,
        adjusts=adjusts,
        accepts=lambda loaded: does_not_know(loaded, name),
        follows=follow,
        settled=settled,
        busy=following.busy,
        confirmed=following.confirmed,
    )


def _name_file(root: Path) -> Path:
    return root / "desired" / "node"


def _which_node(
    given: str | None, source: Source, journal: SourceJournal, root: Path, read: Reader
) -> str:
    """As the fleet says; where it cannot be read now, or lost the node, as it was before."""
    before = remembered_node(root)
    try:
        return choose_node(_newest_fleet(source, journal, read), given)
    except ReconcilerError as error:
        known = given or before
        if known is None or (isinstance(error, UsageError) and known != before):
            raise
        return known


def _newest_fleet(source: Source, journal: SourceJournal, read: Reader) -> Fleet:
    """A fleet to look the node up in: the newest valid one, else the last that was applied."""
    failure: ReconcilerError
    try:
        loaded = read(source.fetch(), journal.held_paths())
        if loaded.fleet is not None:
            return loaded.fleet
        failure = InvalidFleet(loaded.problems)
    except ReconcilerError as error:
        failure = error
    checkout = journal.last_good()
    known = read(checkout, frozenset()).fleet if checkout else None
    if known is None:
        raise failure
    return known


def _has(names: list[str]) -> str:
    return f"it has {', '.join(names)}" if names else "it has no agent node: add a FleetNode"
