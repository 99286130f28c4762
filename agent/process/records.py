"""Records of what we started, on disk, so that a new run of the agent finds its processes."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.process.identity import is_ours
from agent.process.launch import Child, Identity, Launch
from agent.process.model_state import Quarantined, Reloading, ReloadStage
from agent.process.orphan import is_elsewhere
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.atomic import sync_directory
from reconciler.core.observation import Location
from reconciler.fleet.command import Command, KeyPlace, Probe
from reconciler.fleet.workload import PoolNeed
from reconciler.ownfile import Damaged, Unreadable, glance, move_aside, read_json

_VERSION = 1
_NEWER = "the record was written by a newer version of this program and cannot be read"
_STAYS = "it stays as it is, and so does its process: upgrade again"
_LOST = "if its process still runs, the next start of its service takes it back, or ends it"
_AGAIN = "the agent that runs here writes the record again"
_ELSEWHERE = "its process was started from another state directory, which is there: not taken over"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One service of this node, with what a new run needs to continue.

    `marker` without `child` is an intent: a process may have been started, or may not. `boot` is
    the boot in which the record was written. `wanted` False: the service was being stopped for
    good.
    """

    launch: Launch
    wanted: bool
    boot: str
    marker: str | None = None
    child: Child | None = None
    was_ready: bool = False  # the process was ready once
    ready_since: float | None = None  # epoch; None: it was not, when this was written
    failures: int = 0
    reason: str = ""
    message: str = ""
    start_seconds: float | None = None
    reloading: Reloading | None = None  # the process may not have read its files yet
    quarantined: tuple[Quarantined, ...] = ()


class Records:
    """The records of one state directory: one file a service, each written as a whole."""

    def __init__(self, state: StateDir) -> None:
        self._state = state

    def write(self, record: ProcessRecord) -> None:
        """Write a record; it is durable on return. OSError if the disk does not take it."""
        path = self._state.record_file(record.launch.ref)
        self._state.write(path, json.dumps(_dump(record), ensure_ascii=False, indent=1).encode())

    def remove(self, ref: ObjectRef) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._state.record_file(ref).unlink()
            sync_directory(self._state.records)

    def read_all(self) -> tuple[ProcessRecord, ...]:
        """Every readable record, sorted by ref; none without a folder of them. Changes nothing on
        disk."""
        records = (self._read(path, move=False) for path in self._paths())
        return tuple(record for record in records if record is not None)

    def load(self) -> tuple[ProcessRecord, ...]:
        """Like `read_all`; damaged files are moved aside and logged."""
        records = (self._read(path, move=True) for path in self._paths())
        return tuple(record for record in records if record is not None)

    def set_damaged_aside(self) -> bool:
        """Move damaged records aside and log each. True if there were any."""
        there = self._paths()
        for path in there:
            try:
                read_json(path, _parse)
            except Unreadable:
                continue
            except Damaged as error:
                if not _is_newer(path):
                    move_aside(path, str(error), _AGAIN)
        return self._paths() != there

    def _paths(self) -> tuple[Path, ...]:
        return tuple(sorted(self._state.records.glob("*.json")))

    def _read(self, path: Path, *, move: bool) -> ProcessRecord | None:
        """Whatever the file contains, it must not keep the other services from running."""
        try:
            record = read_json(path, _parse)
            if (owned := self._own(record)) is not record and move:
                _log.warning("%s: %s", path, _ELSEWHERE)
            return owned
        except Damaged as error:
            if move and _is_newer(path):
                _log.warning("%s: %s (%s); %s", path, _NEWER, error, _STAYS)
            elif move:
                move_aside(path, str(error), _LOST)
            return None

    def _own(self, record: ProcessRecord | None) -> ProcessRecord | None:
        """What a copied directory says of a process is about that of the first."""
        child = record and record.child
        if record and child and is_elsewhere(self._state, child.identity.pid) and is_ours(child):
            return replace(record, boot="", marker=None, child=None)
        return record


def _is_newer(path: Path) -> bool:
    """Whether another version of this program knows what it says."""
    return bool(glance(path, lambda data: int(data["version"]) > _VERSION))


def dump_needs(needs: Iterable[PoolNeed]) -> list[list[object]]:
    return [[n.pool, n.bytes, n.budget_bytes, [list(part) for part in n.weights]] for n in needs]


def parse_needs(data: Iterable[list[Any]]) -> tuple[PoolNeed, ...]:
    """The inverse of `dump_needs`; TypeError or ValueError if the data is malformed."""
    return tuple(
        PoolNeed(
            str(pool),
            int(count),
            int(budget),
            tuple((str(file), int(size)) for part in weights for file, size in part),
        )
        for pool, count, budget, *weights in data  # 0.1 wrote no weights
    )


def _dump(record: ProcessRecord) -> dict[str, Any]:
    launch, child = record.launch, record.child
    return {
        "version": _VERSION,
        "wanted": record.wanted,
        "boot": record.boot,
        "marker": record.marker,
        "process": None
        if child is None
        else {
            "pid": child.identity.pid,
            "started": child.identity.started,
            "boot": child.identity.boot,
            "spawnedAt": child.spawned_at,
        },
        "served": record.was_ready,
        "readySince": record.ready_since,
        "failures": record.failures,
        "reason": record.reason,
        "message": record.message,
        "startSeconds": record.start_seconds,
        "reloading": None
        if record.reloading is None
        else {"models": sorted(record.reloading.models), "up": list(record.reloading.up)},
        "quarantined": [[q.name, q.reason, q.message, q.until] for q in record.quarantined],
        "launch": dump_launch(launch),
    }


def dump_launch(launch: Launch) -> dict[str, Any]:
    """A launch as JSON. Private, like a command line."""
    command = launch.command
    return {
        "ref": list(launch.ref),
        "inputs": dict(launch.inputs),
        "inputsDigest": launch.inputs_digest,
        "renderDigest": launch.render_digest,
        "runtime": launch.runtime,
        "port": launch.port,
        "host": launch.host,
        "source": None
        if launch.source is None
        else [launch.source.file, launch.source.line, launch.source.commit],
        "needs": dump_needs(launch.needs),
        "models": list(launch.models),
        "drainTimeoutS": launch.drain_timeout_s,
        "argv": list(command.argv),
        "env": dict(command.env),
        "files": dict(command.files),
        "links": dict(command.links),
        "key": None if command.key is None else [command.key.variable, command.key.file],
        "probe": {
            "path": command.probe.path,
            "modelsPath": command.probe.models_path,
            "slotsPath": command.probe.slots_path,
            "queue": None if command.probe.queue is None else list(command.probe.queue),
            "live": command.probe.live,
            "trial": None if command.probe.trial is None else list(command.probe.trial),
            "connections": command.probe.connections,
        },
    }


def _parse(data: Mapping[str, Any]) -> ProcessRecord:
    """The inverse of `_dump`; KeyError, TypeError or ValueError if the data is malformed."""
    if not int(data["version"]) >= _VERSION:
        raise ValueError(f"its version is {data['version']}, this program knows {_VERSION}")
    marker, launch = data["marker"], parse_launch(data["launch"])
    return ProcessRecord(
        launch=launch,
        wanted=bool(data["wanted"]),
        boot=str(data["boot"]),
        marker=None if marker is None else str(marker),
        child=_parse_child(data["process"], marker),
        was_ready=bool(data["served"]),
        ready_since=None if data.get("readySince") is None else float(data["readySince"]),
        failures=int(data["failures"]),
        reason=str(data["reason"]),
        message=str(data["message"]),
        start_seconds=None if data["startSeconds"] is None else float(data["startSeconds"]),
        reloading=_parse_reloading(data.get("reloading"), launch),
        quarantined=tuple(
            Quarantined(str(name), str(reason), str(text), None if until is None else float(until))
            for name, reason, text, until in data.get("quarantined", ())
        ),
    )


def _parse_reloading(data: Mapping[str, Any] | None, launch: Launch) -> Reloading | None:
    """A reload to repeat: how far it got is not known."""
    if data is None:
        return None
    models = frozenset(str(name) for name in data["models"])
    return Reloading(launch, models, ReloadStage.DUE, tuple(str(name) for name in data["up"]))


def _parse_child(data: Mapping[str, Any] | None, marker: str | None) -> Child | None:
    if data is None:
        return None
    if marker is None:
        raise ValueError("a process without a marker")
    pid = int(data["pid"])
    if pid < 2:
        raise ValueError(f"pid {pid} cannot be ours")
    identity = Identity(pid, str(data["started"]), str(data["boot"]))
    return Child(identity, str(marker), float(data["spawnedAt"]), adopted=True)


def parse_launch(data: Mapping[str, Any]) -> Launch:
    """The inverse of `dump_launch`; KeyError, TypeError or ValueError if the data is malformed."""
    kind, namespace, name = data["ref"]
    probe, source = data["probe"], data["source"]
    command = Command(
        argv=tuple(str(word) for word in data["argv"]),
        env={str(key): str(value) for key, value in data["env"].items()},
        files={str(key): str(value) for key, value in data["files"].items()},
        links={str(key): str(value) for key, value in data.get("links", {}).items()},
        key=None if data.get("key") is None else KeyPlace(*(str(word) for word in data["key"])),
        probe=Probe(
            path=str(probe["path"]),
            models_path=probe["modelsPath"],
            slots_path=probe["slotsPath"],
            queue=_pair(probe.get("queue")),
            live=bool(probe.get("live", probe.get("loaded"))),  # 0.1 called it loaded
            trial=_pair(probe.get("trial")),
            connections=bool(probe.get("connections")),
        ),
    )
    launch = Launch(
        ref=ObjectRef(str(kind), str(namespace), str(name)),
        command=command,
        inputs=dict(data["inputs"]),
        inputs_digest=str(data["inputsDigest"]),
        render_digest=str(data["renderDigest"]),
        runtime=str(data["runtime"]),
        port=int(data["port"]),
        host=str(data["host"]),
        needs=parse_needs(data["needs"]),
        models=tuple(str(model) for model in data["models"]),
        drain_timeout_s=float(data["drainTimeoutS"]),
    )
    return launch if source is None else replace(launch, source=Location(*source))


def _pair(data: list[Any] | None) -> tuple[str, str] | None:
    if data is None:
        return None
    first, second = data
    return str(first), str(second)
