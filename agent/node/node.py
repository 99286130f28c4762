"""One machine's agent, wired: a source, the loop that follows it, and the processes it keeps."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.machine.probe import own_memory
from agent.models.headers_first import HeadersFirst
from agent.node.delegate import AgentDelegate, RecordedDelegate
from agent.node.local import LocalAgent, recorded_node
from agent.node.overlay import Overlay, said_of
from agent.node.settings import Settings
from agent.state.directory import StateDir
from agent.state.node_name import node_file, note_node, remembered_node
from reconciler.api.errors import InvalidFleet, ReconcilerError, UsageError, words_of
from reconciler.api.fleetnode import FleetNode
from reconciler.api.nodestate import NodeOverrides
from reconciler.fleet.fleet import Fleet
from reconciler.loop import Loop, LoopTiming, Reporter, Wake
from reconciler.loop.journal import SourceJournal
from reconciler.models.header_cache import HeaderCache
from reconciler.models.headers import LOOP_WAIT_S, Headers
from reconciler.models.lookahead import Lookahead
from reconciler.source.bundle import BundleSource
from reconciler.source.checkout import FetchedAhead, Source
from reconciler.source.history import HistoryFile, PeekedHistory
from reconciler.source.load import LoadCache, Reader, reader
from reconciler.source.open import cache_dir
from reconciler.source.slice import slice_reader

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Following:
    """How a node follows its source. `busy` says why the source is in the middle of something;
    `strict` follows no head that does not build on the applied one. `own_slice`: errors elsewhere
    in the fleet stop nothing here (reconciler.source.slice); else one with any is refused whole."""

    timing: LoopTiming = field(default_factory=LoopTiming)
    strict: bool = False
    own_slice: bool = False
    confirmed: frozenset[str] = frozenset()
    busy: Callable[[], str | None] = lambda: None
    cache: LoadCache = field(default_factory=LoadCache)  # what was read to find the node is known

    @property
    def read(self) -> Reader:
        """The fleet as a whole."""
        return reader(self.cache)


@dataclass(slots=True)
class Node:
    """A node that this process owns: `loop.run()` keeps it equal to its source."""

    name: str
    agent: LocalAgent
    journal: SourceJournal
    loop: Loop
    delegate: AgentDelegate
    settings: Settings

    def said(self) -> NodeOverrides:
        """What a plan made elsewhere has to know of this machine."""
        return said_of(self.settings, self.delegate.overlay.own)


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
    headers: Headers | None = None,
) -> Iterator[Node]:
    """Be the agent of this machine for a while; `given` is the name of its FleetNode, where a
    person said it. `headers`: what is known of models before they are fetched. Raises StateError
    when another process is, UsageError for a name that is not there."""
    state = StateDir.open(settings.root)
    history = HistoryFile(state.desired / "history.json")
    journal = SourceJournal(history, source, strict=following.strict)
    name = _which_node(given, source, journal, settings.root, following.read)
    first = HeadersFirst(headers or headers_of(settings, source, wake.look))
    first.headers.node = name
    agent = LocalAgent(name, settings, changed=wake.look, headers=first)
    agent.start()
    try:
        _remember(settings.root, name)
        overlay = Overlay(name, settings, own_memory)

        def save() -> None:
            agent.save()
            journal.save()
            _remember(settings.root, name)

        delegate = AgentDelegate(name, agent, overlay, source, following.busy, save, wake.stop)
        read = (
            slice_reader(name, lambda: journal.last, following.cache)
            if following.own_slice
            else following.read
        )
        loop = Loop(
            *(source, read, delegate, journal, report, wake),
            timing=following.timing,
            confirmed=following.confirmed,
        )
        yield Node(name, agent, journal, loop, delegate, settings)
    finally:
        agent.close(stop_children=stop_children)


def headers_of(settings: Settings, source: Source, changed: Callable[[], None]) -> Headers:
    """What reads headers beside a loop, with the cache of this user."""
    cache = HeaderCache(cache_dir() / "headers")
    lookahead = Lookahead(cache, offline=settings.offline, changed=changed)
    return Headers(
        lookahead,
        LOOP_WAIT_S,
        gives_up=False,
        hf_token_file=settings.downloads.token_file,
        beside=source.beside if isinstance(source, BundleSource) else None,
    )


def only_seen(
    source: Source,
    given: str | None,
    settings: Settings,
    report: Reporter,
    following: Following,
    headers: Headers | None = None,
) -> tuple[str, Loop]:
    """The node's name, and the loop of `owned` for who only compares: nothing here locks, starts,
    stops or writes. `headers`: what is known of models that are not in its store.
    Raises UsageError, SourceError or InvalidFleet where it cannot be told which node this is."""
    history = PeekedHistory(StateDir(settings.root.absolute()).desired / "history.json")
    journal = SourceJournal(history, source, strict=following.strict)
    source = FetchedAhead(source)
    name = _which_node(given, source, journal, settings.root, following.read)
    node = recorded_node(name, settings)

    overlay = Overlay(name, settings, own_memory)
    if headers is not None:
        headers.node = name
    delegate = RecordedDelegate(name, node, overlay, headers)
    loop = Loop(
        *(source, following.read, delegate, journal, report, Wake()),
        confirmed=following.confirmed,
    )
    return name, loop


def node_of_fleet(root: Path, source: Source) -> str | None:
    """The node that this machine is, where what it applied last is a revision of this fleet."""
    name = remembered_node(root)
    history = PeekedHistory(StateDir(root.absolute()).desired / "history.json")
    return name if name and SourceJournal(history, source).knows_this_fleet else None


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


def _remember(root: Path, name: str) -> None:
    """A disk that does not take it takes no record either: nothing will be started from there."""
    try:
        note_node(root, name)
    except OSError as error:
        _log.warning("%s: cannot be written: %s", node_file(root), words_of(error))


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
