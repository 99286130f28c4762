"""The node of this machine for who only looks at it, wired: nothing here locks, starts, stops or
writes, and nothing that does is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.engines.capability import Versions
from agent.engines.render import CommandRenderer
from agent.machine.memory import MachineMemory
from agent.machine.probe import own_memory, performance_cores
from agent.models.revisions import KeptModels
from agent.models.store import ModelStore
from agent.node.disk import ModelsDisk
from agent.node.follow_options import FollowOptions
from agent.node.overrides import overlay_of
from agent.node.settings import Settings
from agent.node.steps import recorded_steps
from agent.node.view import RecordedNode
from agent.node.which import which_node
from agent.process.ports import PortBook
from agent.process.rebuilt import models_of
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.fleet.model_file import ModelFile, with_companions
from reconciler.loop import Listener, Loop, Wake
from reconciler.loop.journal import SourceJournal
from reconciler.models.headers import Headers
from reconciler.report.terminal import short_revision
from reconciler.source.checkout import FetchedAhead, Source
from reconciler.source.history import PeekedHistory
from reconciler.source.slice import slice_reader


@dataclass(frozen=True, slots=True)
class SeenNode:
    """`headers` are those of models of this node."""

    name: str
    loop: Loop
    headers: Headers | None


def only_seen(
    source: Source,
    given: str | None,
    settings: Settings,
    listeners: Sequence[Listener],
    following: FollowOptions,
    headers: Headers | None = None,
) -> SeenNode:
    """The loop of `owned` for who only compares: nothing here locks, starts, stops or writes.
    `headers`: what is known of models that are not in its store. Raises UsageError, SourceError or
    InvalidFleet where it cannot be told which node this is."""
    history = PeekedHistory(StateDir(settings.root.absolute()).desired / "history.json")
    journal = SourceJournal(history, source, strict=following.strict)
    source = FetchedAhead(source)
    name = which_node(given, source, journal, settings.root, following.read)
    node = recorded_node(name, settings)

    overlay = overlay_of(name, settings, own_memory)
    own = replace(headers, node=name) if headers else None
    steps = recorded_steps(name, node, overlay, own)
    loop = Loop(
        *(source, following.read, steps, journal, listeners, Wake()),
        confirmed=following.confirmed,
        reread=slice_reader(name, lambda: journal.last, following.cache),
    )
    return SeenNode(name, loop, own)


def recorded_node(node: str, settings: Settings) -> RecordedNode:
    """Look at a node without touching it. The state directory need not exist. Raises StateError
    where it would be refused to who runs the node, so that no plan is made from it."""
    state = StateDir(settings.root.absolute())
    state.api_key = settings.api_key_file or state.api_key
    state.must_be_ours()
    models = settings.model_store or state.models
    store = ModelStore(models, min_free_bytes=settings.downloads.keep_free_bytes, read_only=True)
    kept = KeptModels(kept_file(state), read_only=True)
    disk = ModelsDisk(store, kept, lambda: _recorded_models(state))
    renderer = renderer_of(node, state, store, settings, read_only=True)
    return RecordedNode(node, state, renderer, MachineMemory(), disk)


def renderer_of(
    node: str,
    state: StateDir,
    store: ModelStore,
    settings: Settings,
    *,
    read_only: bool = False,
) -> CommandRenderer:
    return CommandRenderer(
        state,
        store,
        PortBook(state, settings.service_ports, node=node, read_only=read_only),
        performance_cores(),
        programs=settings.programs,
        only=settings.runtimes,
        version=Versions(state.root / "versions.json", read_only=read_only),
    )


def needed_digests(state: StateDir, store: ModelStore) -> frozenset[str]:
    """What the last revisions declare, and what processes here were started from: as the state
    directory tells it, without an agent."""
    running = {known for model in _recorded_models(state) if (known := store.digest_of(model))}
    return KeptModels(kept_file(state)).needed() | running


def needers(
    digests: Iterable[str], state: StateDir, store: ModelStore
) -> Mapping[str, tuple[str, ...]]:
    """Which of these stored models are needed now, and by whom, in words: the services that were
    started from them here, else the revision that was applied last and declares them. Without the
    others going back to an older revision means to fetch them again."""
    records = Records(state).read_all()
    newest = KeptModels(kept_file(state), read_only=True).newest
    needed = {}
    for digest in digests:
        services = [r.launch.ref.label for r in records if _is_from(digest, r, store)]
        if not services and newest is not None and digest in newest[1]:
            services = [f"revision {short_revision(newest[0])}, which was applied here last"]
        if services:
            needed[digest] = tuple(services)
    return needed


def _is_from(digest: str, record: ProcessRecord, store: ModelStore) -> bool:
    """Whether a process was started from a model, or is to be."""
    if any(store.digest_of(model) == digest for model in _models_of(record)):
        return True
    return any(digest in word for word in record.launch.command.argv)


def _recorded_models(state: StateDir) -> list[ModelFile]:
    return [model for record in Records(state).read_all() for model in _models_of(record)]


def _models_of(record: ProcessRecord) -> tuple[ModelFile, ...]:
    return with_companions(models_of(record.launch))


def kept_file(state: StateDir) -> Path:
    return state.desired / "models.json"
