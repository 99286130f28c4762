"""What was applied last, kept across restarts, and which newly fetched head may follow it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.errors import StateError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Applied:
    """The last revision that was valid and applied. `files` are the paths that held documents of
    ours, `objects` what stood in each; `services` are the labels of what it ran; `documents` are
    the Fleet and the FleetNodes that were in force. `applied_at` is in seconds since the epoch."""

    location: str
    ref: str
    revision: str
    files: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    applied_at: float = 0.0
    objects: Mapping[str, tuple[ObjectRef, ...]] = field(default_factory=dict)
    documents: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A newer revision that was refused, or of which a part was, and since when."""

    revision: str
    since: float
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldHead:
    """A head that is not followed until a person accepts it."""

    revision: str
    since: float
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """All that is remembered. `unreachable_since`: the source has given nothing since then."""

    applied: Applied | None = None
    refused: Refused | None = None
    unreachable_since: float | None = None
    held: HeldHead | None = None


class Course(StrEnum):
    """How a fetched head stands to what was applied last."""

    FIRST = "first"
    SAME = "same"
    NEWER = "newer"
    OLDER = "older"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to go to the head, and a line for people where it is not the usual case."""

    course: Course
    take: bool
    message: str = ""


def judge(
    last: Applied | None,
    head: str,
    is_ancestor: Callable[[str, str], bool],
    *,
    location: str,
    ref: str,
    strict: bool = False,
    accepted: str | None = None,
) -> Verdict:
    """May `head` follow what was applied last? `is_ancestor(older, newer)` asks the history.

    An older head on the same ref comes from a stale mirror, or from a branch set back by force:
    going back silently would undo newer commits, so it is held until a commit says so. `strict`
    holds a rewritten branch as well. `accepted` is the one head that a person let in.
    """
    if last is None or (last.location, last.ref) != (location, ref):
        return Verdict(Course.FIRST, take=True)
    if head == last.revision:
        return Verdict(Course.SAME, take=True)
    if not (_is_commit(head) and _is_commit(last.revision)):
        return Verdict(Course.NEWER, take=True)  # files as they are have no history
    if is_ancestor(last.revision, head):
        return Verdict(Course.NEWER, take=True)
    here, there = last.revision[:12], head[:12]
    course = Course.OLDER if is_ancestor(head, last.revision) else Course.DIVERGED
    what = f"{location}: {ref} {_TELL[course].format(here=here, there=there)}"
    if head == accepted:
        return Verdict(course, take=True, message=f"{what}; accepted by hand")
    if course is Course.DIVERGED and not strict:
        return Verdict(course, take=True, message=f"{what}; followed")
    accept = f"`fleet-agent accept {there}` on the node follows it"
    if strict:
        return Verdict(course, take=False, message=f"{what}: held (--strict-history); {accept}")
    message = (
        f"{what}, which is applied: held. A stale mirror catches up by itself; to go back on"
        f" purpose, push a revert, run with --ref {there}, or accept it: fleet-agent accept {there}"
    )
    return Verdict(course, take=False, message=message)


_TELL = {
    Course.OLDER: "is at {there}, older than {here}",
    Course.DIVERGED: "was rewritten: {there} does not build on {here}",
}


_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class HistoryFile:
    """The record on disk: one JSON file, replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def peek(self) -> Record:
        """The record, for somebody who only looks: an empty one where it cannot be read."""
        try:
            return _decode(json.loads(self.path.read_bytes()))
        except (OSError, *_DAMAGE):
            return Record()

    def read(self) -> tuple[Record, str]:
        """The record, and a line for people if a damaged one had to be set aside (else empty).

        Raises StateError: it is there and cannot be opened.
        """
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return Record(), ""
        except OSError as error:
            raise StateError(f"{self.path}: cannot be read: {error}") from error
        try:
            return _decode(json.loads(raw)), ""
        except _DAMAGE as error:
            return Record(), self._set_aside(error)

    def write(self, record: Record) -> None:
        """Replace the record, so that a power cut leaves the old one or the new one."""
        half = self.path.with_name(f"{self.path.name}.new")
        text = json.dumps({"format": _FORMAT, **_plain(record)}, sort_keys=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(half, "w", encoding="utf-8", opener=_private) as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            half.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise StateError(f"{self.path}: cannot be written: {error}") from error

    def _set_aside(self, error: Exception) -> str:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        try:
            self.path.replace(aside)
        except OSError as failed:
            raise StateError(f"{self.path}: damaged, and cannot be moved: {failed}") from failed
        return (
            f"{self.path} was damaged ({error}) and is now {aside.name}; what was applied before "
            "is not known, so the next revision is taken as the first"
        )


def _is_commit(revision: str) -> bool:
    return ":" not in revision and "+" not in revision


def _plain(thing: object) -> Any:  # noqa: ANN401  # any JSON
    """A record as JSON takes it; `dataclasses.asdict` would copy every leaf of it."""
    if isinstance(thing, Record | Applied | Refused | HeldHead):
        return {f.name: _plain(getattr(thing, f.name)) for f in fields(thing)}
    return dict(thing) if isinstance(thing, Mapping) else thing


def _decode(raw: object) -> Record:
    """Raises ValueError, KeyError or TypeError: not what write() wrote."""
    if not isinstance(raw, dict) or raw.get("format") != _FORMAT:
        raise ValueError("not a record of this program")
    applied, refused, since = raw["applied"], raw["refused"], raw["unreachable_since"]
    held = raw.get("held")
    return Record(
        applied=None if applied is None else _applied(applied),
        refused=None if refused is None else _refused(refused),
        unreachable_since=None if since is None else float(since),
        held=None
        if held is None
        else HeldHead(_text(held["revision"]), float(held["since"]), _text(held["message"])),
    )


def _applied(raw: dict[str, Any]) -> Applied:
    """The last two were not written by 0.1: what stood where is then not known."""
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
    )


def _refused(raw: dict[str, Any]) -> Refused:
    return Refused(
        revision=_text(raw["revision"]),
        since=float(raw["since"]),
        problems=_texts(raw["problems"]),
    )


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise TypeError("a text is missing")
    return raw


def _texts(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise TypeError("a list is missing")
    return tuple(_text(item) for item in raw)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
