"""One machine's agent, wired: a source, the loop that follows it, and the processes it keeps."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.machine.probe import own_memory
from agent.models.header_gate import HeaderGate
from agent.node.follow_options import FollowOptions
from agent.node.local import LocalAgent
from agent.node.overrides import overlay_of, overrides_of
from agent.node.settings import Settings
from agent.node.steps import AgentSteps
from agent.node.which import which_node
from agent.state.directory import StateDir
from agent.state.node_name import node_file, note_node
from reconciler.api.errors import error_text
from reconciler.api.nodestate import NodeOverrides
from reconciler.loop import Listener, Loop, Wake
from reconciler.loop.journal import SourceJournal
from reconciler.models.header_cache import HeaderCache
from reconciler.models.header_reader import HeaderReader
from reconciler.models.headers import LOOP_WAIT_S, Headers
from reconciler.placement.overrides import Overlay
from reconciler.source.bundle import BundleSource
from reconciler.source.checkout import Source
from reconciler.source.history import HistoryFile
from reconciler.source.open import cache_dir
from reconciler.source.slice import slice_reader

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Node:
    """A node that this process owns: `loop.run()` keeps it equal to its source."""

    name: str
    agent: LocalAgent
    journal: SourceJournal
    loop: Loop
    overlay: Overlay
    settings: Settings

    def overrides(self) -> NodeOverrides:
        """What a plan made elsewhere has to know of this machine."""
        return overrides_of(self.settings, self.overlay.own)


@contextlib.contextmanager
def owned(
    source: Source,
    given: str | None,
    settings: Settings,
    wake: Wake,
    listeners: Sequence[Listener],
    following: FollowOptions,
    *,
    stop_children: bool,
    headers: Headers | None = None,
) -> Iterator[Node]:
    """Be the agent of this machine for a while; `given` is the name of its FleetNode, where a
    person said it. `headers`: what is known of models before they are fetched. Raises StateError
    when another process is, UsageError for a name that is not there."""
    state = StateDir.open(settings.root)
    history = HistoryFile(state.desired / "history.json")
    journal = SourceJournal(history, source, strict=following.strict)
    name = which_node(given, source, journal, settings.root, following.read)
    first = HeaderGate(replace(headers or headers_of(settings, source, wake.pass_now), node=name))
    agent = LocalAgent(name, settings, changed=wake.pass_now, headers=first)
    agent.start()
    try:
        _remember(settings.root, name)
        overlay = overlay_of(name, settings, own_memory)

        def save() -> None:
            agent.save()
            journal.save()
            _remember(settings.root, name)

        own = AgentSteps(name, agent, overlay, source, following.busy, save, wake.stop)
        own_slice = slice_reader(name, lambda: journal.last, following.cache)
        read = own_slice if following.own_slice else following.read
        loop = Loop(
            *(source, read, own.steps(), journal, (own, *listeners), wake),
            timing=following.timing,
            confirmed=following.confirmed,
            reread=own_slice,
        )
        yield Node(name, agent, journal, loop, overlay, settings)
    finally:
        agent.close(stop_children=stop_children)


def headers_of(settings: Settings, source: Source, changed: Callable[[], None]) -> Headers:
    """What reads headers beside a loop, with the cache of this user."""
    cache = HeaderCache(cache_dir() / "headers")
    reader = HeaderReader(cache, offline=settings.offline, changed=changed)
    return Headers(
        reader,
        LOOP_WAIT_S,
        gives_up=False,
        hf_token_file=settings.downloads.token_file,
        beside=source.beside if isinstance(source, BundleSource) else None,
    )


def _remember(root: Path, name: str) -> None:
    """A disk that does not take it takes no record either: nothing will be started from there."""
    try:
        note_node(root, name)
    except OSError as error:
        _log.warning("%s: cannot be written: %s", node_file(root), error_text(error))
