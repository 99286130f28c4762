"""What an agent and a reconciler left on disk: each input in the place of every such file, read by
all their readers. A damaged one counts as absent. StateError, and no other."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.byhand import requests
from agent.byhand.restarts import Restarts, read_restarts
from agent.byhand.stopped import Stopped, read_stopped
from agent.cluster.following import Followed
from agent.cluster.saved import save, saved
from agent.engines.capability import Versions
from agent.models.content_store import ContentStore
from agent.models.expected import ExpectedFile, read_noted
from agent.models.revisions import KeptModels
from agent.models.stored_facts import load_facts, save_facts
from agent.node.handover import Handover
from agent.process.ports import PortBook
from agent.process.records import ProcessRecord, Records
from agent.server import SERVED_FILE, served
from agent.server.tls import certificate_sha256
from agent.state.benchmarks import read_results
from agent.state.directory import StateDir
from agent.state.drift_file import drift_file, read_drifts, write_drifts
from agent.state.node_name import note_node, remembered_node
from agent.state.suspended import note_suspended, read_suspended
from agent.state.undone import read_undone
from reconciler.agents.lastseen import LastSeen, Seen
from reconciler.api.errors import StateError
from reconciler.core.observation import Drift, DriftKind
from reconciler.kube.objects import id_of
from reconciler.models.header_cache import HeaderCache, KnownHeader, RemoteHeader
from reconciler.models.partial import Partial
from reconciler.source.history import Applied, HistoryFile, RevisionVerdict, VerdictKind
from reconciler.source.history import SourceRecord as Past
from tests.fuzz.target import JSON_PIECES, Target
from tests.gguf.test_header import SEEDS, read_facts
from tests.support.builders import instance, ref
from tests.support.owner import launch

_DIGEST = "ab" * 32
_LOCATION = "cluster://home"


def _stopped(state: StateDir) -> None:
    read_stopped(state)
    Stopped(state).changed({ref(): "other"})


def _node(state: StateDir) -> None:
    remembered_node(state.root)
    note_node(state.root, "mac")


def _shelf(state: StateDir) -> None:
    contents = ContentStore(state.models)
    contents.inventory()
    contents.facts(_DIGEST)
    contents.first_verified("hf://a/b/c.gguf")


def _partial(state: StateDir) -> None:
    with Partial(state.root / "partial"):
        pass


def _last_seen(state: StateDir) -> None:
    seen = LastSeen(state.root / "seen.json")
    seen.note("mac", "http://127.0.0.1:1", Seen(2e9))
    seen.save()


# Where a file lies, and what reads it.
READERS: dict[str, Callable[[StateDir], object]] = {
    "desired/history.json": lambda s: [
        HistoryFile(s.desired / "history.json").peek(),
        HistoryFile(s.desired / "history.json").read(),
    ],
    "records/InferenceService.default.chat.json": lambda s: [
        Records(s).read_all(),
        Records(s).load(),
    ],
    "ports.json": lambda s: PortBook(s).port_for(ref(), None),
    "desired/stopped.json": _stopped,
    "requests/1-a.json": requests.take,
    "desired/expected.json": lambda s: read_noted(s, "node/mac"),
    "desired/suspended.json": read_suspended,
    "desired/drift.json": lambda s: read_drifts(drift_file(s)),
    "desired/models.json": lambda s: KeptModels(s.desired / "models.json").needed(),
    "desired/cluster.json": lambda s: saved(s.desired / "cluster.json", _LOCATION),
    "desired/moves.json": lambda s: Handover(s.desired / "moves.json"),
    "desired/node": _node,
    "desired/restarts.json": lambda s: [read_restarts(s), Restarts(s)],
    "desired/undone.json": read_undone,
    "benchmarks.json": lambda s: read_results(s.root),
    "tls/cert.pem": lambda s: certificate_sha256(s.root),
    "versions.json": lambda s: Versions(s.root / "versions.json"),
    SERVED_FILE: lambda s: served(s.root),
    f"models/sha256/{_DIGEST}/.model.json": _shelf,
    f"models/sha256/{_DIGEST}/.facts.json": lambda s: load_facts(
        s.models / "sha256" / _DIGEST / ".facts.json"
    ),
    "models/sources/x.json": _shelf,
    "partial.json": _partial,
    "seen.json": _last_seen,
    "headers/x.json": lambda s: HeaderCache(s.root / "headers").get("x"),
}


def _prepare(folder: Path) -> Callable[[bytes], None]:
    logging.disable(logging.WARNING)
    os.fsync = lambda fd: None  # a power cut is not what is looked for, and takes most of the time
    place = folder / "state"
    state = StateDir.open(place)

    def read(data: bytes) -> None:
        for file in [path for path in place.rglob("*") if path.is_file()]:
            file.unlink()  # also what readers have set aside
        for path, reader in READERS.items():
            file = state.root / path
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(data)
            with contextlib.suppress(StateError):
                reader(state)

    return read


def _seeds() -> Iterable[bytes]:
    with TemporaryDirectory(prefix="fuzz-") as folder:
        state = StateDir.open(Path(folder) / "state")
        _write_all(state)
        for path in sorted(state.root.rglob("*.json")):
            yield path.read_bytes()
    yield json.dumps(
        {"file": "m.gguf", "sizeBytes": 4, "format": "gguf", "files": [["m.gguf", 4, _DIGEST]]}
    ).encode()
    yield json.dumps({"source": "hf://a/b/c.gguf", "sha256": _DIGEST, "resolved": "x"}).encode()
    yield json.dumps({"url": "http://127.0.0.1:1", "certSha256": None, "problem": None}).encode()
    yield json.dumps({"default/chat": {"home": "pc", "since": 1.5}}).encode()
    yield json.dumps([{"revision": "abc", "models": [_DIGEST]}]).encode()
    yield b"[" * 100_000 + b"]" * 100_000
    yield b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def _write_all(state: StateDir) -> None:
    documents = ({"apiVersion": "v", "kind": "Fleet", "metadata": {"name": "home"}},)
    applied = Applied(
        "/srv", "main", "abc", ("a.yaml",), ("default/chat",), 1.5, {"a.yaml": (ref(),)}, documents
    )
    HistoryFile(state.desired / "history.json").write(
        Past(
            applied,
            {"x": ("y",)},
            RevisionVerdict(VerdictKind.REFUSED, "def", 1.5, problems=("no",)),
            2.5,
        )
    )
    Records(state).write(ProcessRecord(launch=launch("chat", 20_000), wanted=True, boot="b"))
    PortBook(state).port_for(ref(), None)
    Stopped(state).add({ref(): "digest"}, {})
    requests.ask(state, requests.STOP, [ref()])
    ExpectedFile(state).write([instance(since=1.5)])
    note_suspended(state, [ref("idle")])
    write_drifts(drift_file(state), {"default/chat": (7, (Drift(DriftKind.COSMETIC, "a", 1.5),))})
    facts = read_facts(SEEDS[1])
    save_facts(state.root / "facts.json", facts)
    HeaderCache(state.root / "headers").put(
        "x", KnownHeader((("a", "b", 1),), RemoteHeader(1, _DIGEST, facts, ""))
    )
    found = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {"source": "hf://a/b/c.gguf"},
    }
    followed = Followed("r", {id_of(found): found})
    save(state.desired / "cluster.json", _LOCATION, followed)


TARGET = Target(
    "statefiles",
    _prepare,
    _seeds,
    pieces=JSON_PIECES,
    is_json=True,
)
