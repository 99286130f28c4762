"""What was applied before, across our own restarts: which head may follow it, and what it held."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.desired import Desired
from reconciler.plan import RevisionState
from reconciler.problem import Problem
from reconciler.source.checkout import Checkout, Source
from reconciler.source.history import (
    Applied,
    Course,
    HistoryFile,
    Record,
    Refused,
    Verdict,
    judge,
)

if TYPE_CHECKING:
    from reconciler.source.git import GitSource

_MOST_PROBLEMS = 100


class SourceJournal:
    """The record of one source, on disk. Only the owner of the state directory writes it."""

    def __init__(self, file: HistoryFile, source: Source) -> None:
        self._file = file
        self._source = source
        self._ref = str(getattr(source, "ref", "")) or "files"
        self._record, self.damage = file.read()

    @property
    def _last(self) -> Applied | None:
        last = self._record.applied
        same = last and (last.location, last.ref) == (self._source.location, self._ref)
        return last if same else None

    def accept(self, checkout: Checkout) -> Verdict:
        """Whether a fetched revision may follow the applied one. Raises StateError."""
        if self._record.refused and self._last and self._last.revision == checkout.revision:
            self._write(Record(self._record.applied))  # the refused one was taken back
        git = self._git()
        if git is None:
            return Verdict(Course.NEWER, take=True)
        return judge(
            self._last,
            checkout.revision,
            git.is_ancestor,
            location=git.location,
            ref=self._ref,
        )

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
        return frozenset(self._last.files) if self._last else frozenset()

    def last_good(self) -> Checkout | None:
        """The applied revision again, from what was fetched then. Raises SourceError."""
        git = self._git()
        return git.at(self._last.revision) if git and self._last else None

    def applied(self, desired: Desired) -> None:
        """Remember the revision, once. Raises StateError."""
        fleet = desired.fleet
        if self._last and self._last.revision == fleet.revision:
            return  # also while a newer one is refused, which stays known
        if git := self._git():
            git.keep(fleet.revision)
        now = Applied(
            location=self._source.location,
            ref=self._ref,
            revision=fleet.revision,
            files=tuple(sorted({origin.path for origin in fleet.origins.values()})),
            services=tuple(w.ref.label for w in desired.assignment.workloads),
            applied_at=time.time(),
        )
        self._write(Record(applied=now))

    def refused(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        """Remember that a revision was refused whole, and why. Raises StateError."""
        lines = tuple(str(problem) for problem in problems[:_MOST_PROBLEMS])
        entry = Refused(checkout.revision, time.time(), lines)
        self._write(replace(self._record, refused=entry))

    def revision_state(self) -> RevisionState:
        """What was applied and what was refused of this source, as the record has it."""
        refused = self._record.refused
        return RevisionState(
            applied=self._last.revision if self._last else None,
            refused=refused.revision if refused else None,
            problems=refused.problems if refused else (),
        )

    def _write(self, record: Record) -> None:
        self._file.write(record)
        self._record = record

    def _git(self) -> GitSource | None:
        """The source as a git repository's, for what only history can answer."""
        from reconciler.source.git import GitSource

        return self._source if isinstance(self._source, GitSource) else None
