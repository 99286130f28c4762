"""What was applied before, across our own restarts: which head may follow it, and what it held."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.desired import Desired
from reconciler.errors import StateError
from reconciler.plan import RevisionState
from reconciler.problem import Problem
from reconciler.source.checkout import Checkout, Historied, Source
from reconciler.source.history import (
    Applied,
    Course,
    HeldHead,
    HistoryFile,
    Record,
    Refused,
    Verdict,
    judge,
)

if TYPE_CHECKING:
    from reconciler.source.load import Loaded

_MOST_PROBLEMS = 100


class SourceJournal:
    """The record of one source, on disk. Only the owner of the state directory writes it.

    `strict` follows no head that does not build on the applied one, until a person accepts it.
    """

    def __init__(self, file: HistoryFile, source: Source, *, strict: bool = False) -> None:
        self._file = file
        self._source = source
        self._strict = strict
        self._ref = str(getattr(source, "ref", "")) or "files"
        self._record, self.damage = file.read()

    @property
    def last(self) -> Applied | None:
        """What was applied last of this source."""
        last = self._record.applied
        same = last and (last.location, last.ref) == (self._source.location, self._ref)
        return last if same else None

    def accept(self, checkout: Checkout) -> Verdict:
        """Whether a fetched revision may follow the applied one. Raises StateError."""
        refused, last, head = self._record.refused, self.last, checkout.revision
        if refused and last and last.revision == head != refused.revision:
            self._write(replace(self._record, refused=None))  # the refused one was taken back
        git = self._git()
        if git is None:
            return Verdict(Course.NEWER, take=True)
        verdict = judge(
            last,
            head,
            git.is_ancestor,
            location=git.location,
            ref=self._ref,
            strict=self._strict,
            accepted=accepted(self._file.path),
        )
        self._note_held(None if verdict.take else head, verdict.message)
        return verdict

    def _note_held(self, head: str | None, message: str) -> None:
        """Remember the head that waits for a person, for `fleet-agent accept`."""
        held = self._record.held
        if head != (held.revision if held else None):
            entry = HeldHead(head, time.time(), message) if head else None
            self._write(replace(self._record, held=entry))

    @property
    def other_fleet(self) -> str | None:
        """Where the services that run here came from, when that was another repository or folder:
        what this one does not declare may be what that one still does."""
        last = self._record.applied
        there = last is not None and last.services and last.location != self._source.location
        return last.location if last and there else None

    def lost(self) -> float:
        """The source gives nothing: since when (epoch seconds), across restarts."""
        since = self._record.unreachable_since
        if since is None:
            since = time.time()
            self._write(replace(self._record, unreachable_since=since))
        return since

    def found(self) -> None:
        """The source answers."""
        if self._record.unreachable_since is not None:
            self._write(replace(self._record, unreachable_since=None))

    def held_paths(self) -> frozenset[str]:
        """Files that held fleet documents in the applied revision."""
        return frozenset(self.last.files) if self.last else frozenset()

    def last_good(self) -> Checkout | None:
        """The applied revision again, from what was fetched then. Raises SourceError."""
        git = self._git()
        return git.at(self.last.revision) if git and self.last else None

    def applied(self, desired: Desired) -> None:
        """Remember the revision, once. Raises StateError."""
        revision, loaded = desired.fleet.revision, desired.loaded
        if self.last and self.last.revision == revision:
            return  # also while a newer one is refused, which stays known
        if git := self._git():
            git.keep(revision)
        now = Applied(
            location=self._source.location,
            ref=self._ref,
            revision=revision,
            files=tuple(sorted(loaded.files)),
            services=tuple(w.ref.label for w in desired.assignment.workloads),
            applied_at=time.time(),
            objects=loaded.files,
            documents=in_force(loaded),
        )
        refused = self._record.refused
        partly = refused if refused and refused.revision == revision else None
        self._write(Record(applied=now, refused=partly))
        if accepted(self._file.path) == revision:
            withdraw(self._file.path)

    def refused(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        """Remember that a revision was refused, whole or in part, and why. Raises StateError."""
        lines = tuple(str(problem) for problem in problems[:_MOST_PROBLEMS])
        known = self._record.refused
        again = known is not None and known.revision == checkout.revision
        since = known.since if known and again else time.time()
        entry = Refused(checkout.revision, since, lines)
        self._write(replace(self._record, refused=entry))

    def revision_state(self) -> RevisionState:
        """What was applied and what was refused of this source, as the record has it."""
        refused = self._record.refused
        return RevisionState(
            applied=self.last.revision if self.last else None,
            refused=refused.revision if refused else None,
            problems=refused.problems if refused else (),
        )

    def _write(self, record: Record) -> None:
        self._file.write(record)
        self._record = record

    def _git(self) -> Historied | None:
        """The source as one that has commits, for what only history can answer."""
        return self._source if isinstance(self._source, Historied) else None


def applied_location(history: Path) -> str | None:
    """Where the revision came from that was applied last, for whoever only looks."""
    last = HistoryFile(history).peek().applied
    return last.location if last else None


def accepted(history: Path) -> str | None:
    """The one head that a person let in beside this record of what was applied."""
    try:
        return _note(history).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def let_in(history: Path, revision: str) -> None:
    """Let exactly this head in, once; the owner of the record reads it with its next fetch.
    Raises StateError."""
    note = _note(history)
    half = note.with_name(f"{note.name}.new")
    try:
        half.write_text(f"{revision}\n", encoding="utf-8")
        half.replace(note)
    except OSError as error:
        raise StateError(f"{note}: cannot be written: {error}") from error


def withdraw(history: Path) -> None:
    """It was followed: another time it would have to be accepted again."""
    with contextlib.suppress(OSError):
        _note(history).unlink()


def _note(history: Path) -> Path:
    return history.with_name("accepted")


def in_force(loaded: Loaded) -> tuple[dict[str, Any], ...]:
    """The Fleet and the FleetNodes as documents: they stand in where a later revision breaks
    one."""
    fleet = loaded.fleet or loaded.standing
    policies: tuple[FleetPolicy | FleetNode, ...] = (*fleet.all(FleetPolicy), *fleet.all(FleetNode))
    return tuple(
        thing.model_dump(by_alias=True, mode="json", exclude_unset=True) for thing in policies
    )
