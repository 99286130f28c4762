"""What was applied last, kept across restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from reconciler.api.errors import StateError, error_text
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.ownfile import Damaged, Unreadable, glance, moved_aside, read_json

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Applied:
    """The last revision that was valid and applied.

    `files` are the paths that contained our documents, `objects` the objects in each; `services`
    are the labels of the services it ran; `documents` are the Fleet and the FleetNodes in force.
    `fleet` identifies the fleet (checkout.fleet_of), `root` is its folder in a repository.
    `applied_at` is in seconds since the epoch.
    """

    location: str
    ref: str
    revision: str
    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    applied_at: float = 0.0
    objects: Mapping[str, tuple[ObjectRef, ...]] = field(default_factory=dict)
    documents: tuple[Mapping[str, Any], ...] = ()
    fleet: str = ""
    root: str = ""


@dataclass(frozen=True, slots=True)
class NotedRevision:
    """The commit that was followed last, as it is noted where it is applied: a program that has no
    record of its own goes on from it. The fields are those of Applied; `name` is the Fleet's.
    `record`: the record of the program that applied it, where that can be read."""

    name: str
    location: str
    ref: str
    revision: str
    fleet: str
    root: str
    noted_at: float = 0.0
    record: Applied | None = None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source's commits are from. The fields are those of Applied."""

    location: str
    ref: str
    fleet: str
    root: str

    def noted(self, name: str, revision: str, at: float) -> NotedRevision:
        return NotedRevision(
            name, self.location, self.ref, revision, self.fleet, self.root, noted_at=at
        )


class VerdictKind(StrEnum):
    """The kinds of verdicts on a revision."""

    REFUSED = "refused"  # its documents have errors: it is not applied, or only in part
    HELD = "held"  # it is valid: its history or a guard keeps it from being applied
    FAILED = "failed"  # reading it raised an exception that is a defect of this program


@dataclass(frozen=True, slots=True)
class RevisionVerdict:
    """The reason that the newest revision is not applied, or not as a whole.

    `since` is in seconds since the epoch. `waits_for_a_person`: `fleet-agent accept` lets the
    revision in.
    """

    kind: VerdictKind
    revision: str
    since: float
    message: str = ""
    problems: tuple[str, ...] = ()
    waits_for_a_person: bool = False

    @property
    def reason(self) -> str:
        """The first problem, or the message."""
        return self.problems[0] if self.problems else self.message or "it has errors"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The whole record. `verdict` is about the newest revision; None: that one is applied.
    `unreachable_since`: since when the source gives nothing, and `unreachable_why`. `others`: the
    services that other fleets have started here, by fleet."""

    applied: Applied | None = None
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verdict: RevisionVerdict | None = None
    unreachable_since: float | None = None
    unreachable_why: str = ""


_LOST = "what was applied before is not known, so the next revision is taken as the first"


class HistoryFile:
    """The record on disk: one JSON file, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def peek(self) -> SourceRecord:
        """The record, for a read-only command: an empty one if it cannot be read."""
        return glance(self.path, _decode) or SourceRecord()

    def read(self) -> tuple[SourceRecord, str]:
        """The record, and a line for the log if a damaged one had to be set aside (else empty).

        Raises StateError if it exists and cannot be opened.
        """
        try:
            return self._opened(), ""
        except Damaged as error:
            return SourceRecord(), moved_aside(self.path, str(error), _LOST)

    def _opened(self) -> SourceRecord:
        """Raises StateError if it cannot be opened, Damaged if it is not what we write."""
        try:
            return read_json(self.path, _decode) or SourceRecord()
        except Unreadable as error:
            raise StateError(f"{self.path}: cannot be read: {error}") from error

    def write(self, record: SourceRecord) -> None:
        """Replace the record atomically: a power cut leaves the old one or the new one."""
        text = json.dumps({"format": _FORMAT, **_encode(record)}, sort_keys=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path, f"{text}\n".encode())
        except OSError as error:
            raise StateError(
                f"{self.path}: cannot be written: {error_text(error, self.path)}"
            ) from error


class PeekedHistory(HistoryFile):
    """The record for a pass that changes nothing: writes are dropped."""

    def read(self) -> tuple[SourceRecord, str]:
        try:
            return self._opened(), ""
        except Damaged:
            return SourceRecord(), ""

    def write(self, record: SourceRecord) -> None:
        """Drop the record."""


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit: revisions of plain files have another form."""
    return ":" not in revision and "+" not in revision


def _encode(record: SourceRecord) -> dict[str, Any]:
    """The record as JSON types. The verdict is below the name of its kind, where versions that
    knew two kinds find it."""
    plain: dict[str, Any] = _plain(record)
    verdict = plain.pop("verdict")
    return plain | {str(kind): verdict and _of_kind(kind, verdict) for kind in VerdictKind}


def _of_kind(kind: VerdictKind, verdict: dict[str, Any]) -> dict[str, Any] | None:
    return verdict if verdict["kind"] is kind else None


def _plain(thing: object) -> Any:  # noqa: ANN401  # any JSON
    """A record as JSON types; `dataclasses.asdict` would copy every leaf of it."""
    if isinstance(thing, SourceRecord | Applied | RevisionVerdict):
        return {f.name: _plain(getattr(thing, f.name)) for f in fields(thing)}
    return dict(thing) if isinstance(thing, Mapping) else thing


def _decode(raw: object) -> SourceRecord:
    """Raises ValueError, KeyError or TypeError if the data is malformed."""
    if not isinstance(raw, dict) or raw.get("format") != _FORMAT:
        raise ValueError("not a record of this program")
    applied, since = raw["applied"], raw["unreachable_since"]
    # Earlier versions could have both: a held head was always newer than a refused one.
    by_kind = {
        kind: raw.get(kind) for kind in (VerdictKind.FAILED, VerdictKind.HELD, VerdictKind.REFUSED)
    }
    verdicts = (_verdict(kind, known) for kind, known in by_kind.items() if known is not None)
    return SourceRecord(
        applied=None if applied is None else _applied(applied),
        others={_text(fleet): _texts(names) for fleet, names in raw.get("others", {}).items()},
        verdict=next(verdicts, None),
        unreachable_since=None if since is None else float(since),
        unreachable_why=str(raw.get("unreachable_why", "")),
    )


def _applied(raw: dict[str, Any]) -> Applied:
    """0.1 did not write all fields: which objects were in which file is then unknown."""
    return Applied(
        location=_text(raw["location"]),
        ref=_text(raw["ref"]),
        revision=_text(raw["revision"]),
        files=_texts(raw["files"]),
        services=_texts(raw["services"]),
        applied_at=float(raw["applied_at"]),
        objects={
            _text(path): tuple(ObjectRef(*map(str, ref)) for ref in refs)
            for path, refs in raw.get("objects", {}).items()
        },
        documents=tuple(dict(document) for document in raw.get("documents", ())),
        fleet=str(raw.get("fleet", "")),
        root=str(raw.get("root", "")),
    )


def _verdict(kind: VerdictKind, raw: dict[str, Any]) -> RevisionVerdict:
    """The first version with held heads did not note which of them wait for a person."""
    is_refused = kind is VerdictKind.REFUSED
    return RevisionVerdict(
        kind=kind,
        revision=_text(raw["revision"]),
        since=float(raw["since"]),
        message="" if is_refused else _text(raw["message"]),
        problems=_texts(raw["problems"]) if is_refused else (),
        waits_for_a_person=bool(raw.get("waits_for_a_person", kind is VerdictKind.HELD)),
    )


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise TypeError("a text is missing")
    return raw


def _texts(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise TypeError("a list is missing")
    return tuple(_text(item) for item in raw)
