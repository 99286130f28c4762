"""What was applied before, across our own restarts: which head may follow it, and what it held."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import SourceError
from reconciler.api.fleet import FleetPolicy, Prune
from reconciler.api.fleetnode import FleetNode
from reconciler.core.observation import RevisionState
from reconciler.core.prune import Before
from reconciler.loop.accepted import accepted, withdraw
from reconciler.loop.desired import Desired
from reconciler.source.checkout import Checkout, Committed, Historied, Source, fleet_of
from reconciler.source.history import (
    Applied,
    HistoryFile,
    NotedRevision,
    RevisionVerdict,
    SourcePlace,
    SourceRecord,
    VerdictKind,
    is_commit,
)
from reconciler.source.verdict import ON_THE_NODE, Acceptance, Course, HeadVerdict, judge

if TYPE_CHECKING:
    from reconciler.source.load import Loaded

_FILES = "files"  # what stands for the ref of a source without refs


class SourceJournal:
    """The record of one source, on disk. Only the owner of the state directory writes it.

    `strict` follows no head that does not build on the applied one, until a person accepts it.
    """

    def __init__(self, file: HistoryFile, source: Source, *, strict: bool = False) -> None:
        self._file = file
        self._source = source
        self._strict = strict
        self._ref = _ref_of(source)
        self._fleet = fleet_of(source)
        self._known: set[str] = set()  # commits applied from elsewhere that this repository has
        self._record, self.damage = file.read()

    @property
    def record(self) -> SourceRecord:
        """All that is known of the source."""
        return self._record

    @property
    def last(self) -> Applied | None:
        """What was applied last of this source. Files follow whatever was applied from there, and
        are followed by it; a ref of another place says nothing about the refs of this one."""
        last = self._record.applied
        if last is None or not self._is_ours(last):
            return None
        is_elsewhere = last.location != self._source.location
        return (
            last
            if is_elsewhere or last.ref == self._ref or _FILES in (last.ref, self._ref)
            else None
        )

    def accept(self, checkout: Checkout, acceptance: Acceptance = ON_THE_NODE) -> HeadVerdict:
        """Whether a fetched revision may follow the applied one. A head that is held is let in by
        the note beside this record as well."""
        git = self._git()
        if git is None:
            return HeadVerdict(Course.NEWER, take=True)
        return judge(
            self.last,
            # Of a work tree: files are judged by what they were edited from.
            checkout.commit or checkout.revision,
            git.is_ancestor,
            location=git.location,
            ref=self._ref,
            strict=self._strict,
            is_unrelated=git.is_unrelated,
            acceptance=replace(
                acceptance,
                accepts=lambda head: accepted(self._file.path) == head or acceptance.accepts(head),
            ),
        )

    def judged(self, verdict: RevisionVerdict | None) -> None:
        """Store the verdict on the newest revision; None: it is followed as a whole. The first time
        of the same verdict stays. Raises StateError."""
        before = self._record.verdict
        if verdict is not None and before is not None:
            known = (before.kind, before.revision) == (verdict.kind, verdict.revision)
            verdict = replace(verdict, since=before.since) if known else verdict
        if verdict != before:
            self._write(replace(self._record, verdict=verdict))

    @property
    def foreign(self) -> Mapping[str, str]:
        """The services that another repository or folder started here, and where it is: what this
        one does not declare, or otherwise, may be what that one still does."""
        last = self._record.applied
        started = {_home(last): last.services} if last and not self._is_ours(last) else {}
        started |= self._record.others
        return {
            service: fleet
            for fleet, services in started.items()
            for service in services
            if fleet != self._fleet
        }

    @property
    def before(self) -> Before:
        """Also the limits of the applied revision: they count for what removes beyond them."""
        if self.last is None:
            return Before(self.foreign)
        last = self.last
        return Before(self.foreign, _limits(last), _services(last), _nodes(last), last.revision)

    def begins(self, desired: Desired) -> None:
        """This revision is about to be applied. While another fleet's services stay, because
        their removal was not confirmed, so both are at home here. Raises StateError."""
        foreign = self.foreign
        if not foreign or (self._record.applied and self._is_ours(self._record.applied)):
            return
        own = tuple(sorted(label for label in self._services_of(desired) if label not in foreign))
        if own != self._record.others.get(self._fleet, ()):
            others = {**self._record.others, self._fleet: own}
            self._write(replace(self._record, others=others))

    def lost(self, why: str) -> float:
        """The source cannot be read: since when (epoch seconds), across restarts."""
        record = self._record
        since = time.time() if record.unreachable_since is None else record.unreachable_since
        if (record.unreachable_since, record.unreachable_why) != (since, why):
            self._write(replace(record, unreachable_since=since, unreachable_why=why))
        return since

    def source_answered(self) -> None:
        """The source answers."""
        if self._record.unreachable_since is not None:
            self._write(replace(self._record, unreachable_since=None, unreachable_why=""))

    def save(self) -> None:
        """Write the record where nothing is on the disk any more. Raises StateError."""
        self._write(self._record)

    def held_paths(self) -> frozenset[str]:
        """Files that held fleet documents in the applied revision."""
        return frozenset(self.last.files) if self.last else frozenset()

    def recall(self, noted: NotedRevision, read: Callable[[Checkout], Loaded]) -> None:
        """What was followed last is this, whatever this program remembers: it was noted where it is
        applied. What it declared is read where the commit can be had. Raises
        StateError."""
        before = self._record.applied
        if before is not None and before.revision == noted.revision:
            return
        applied = noted.record or self._read_again(noted, read)
        self._write(replace(self._record, applied=applied))

    def _read_again(self, noted: NotedRevision, read: Callable[[Checkout], Loaded]) -> Applied:
        applied = Applied(
            location=noted.location,
            ref=noted.ref,
            revision=noted.revision,
            fleet=noted.fleet,
            root=noted.root,
            applied_at=noted.noted_at,
        )
        if (git := self._git()) is not None:
            with contextlib.suppress(SourceError):  # then it is no ancestor of anything
                return _declaring(applied, read(_had(git, noted.revision)))
        return applied

    def last_good(self) -> Checkout | None:
        """The applied revision again, from what was fetched then or by its id. Raises
        SourceError."""
        git, last = self._git(), self.last
        if git is None or last is None or not is_commit(last.revision):
            return None
        return _had(git, last.revision)

    def applied(self, desired: Desired) -> None:
        """Remember the revision, once. Raises StateError."""
        revision, loaded = desired.fleet.revision, desired.loaded
        last, others = self.last, self._record.others
        labels = self._services_of(desired)
        if last and (last.location, last.revision, others) == (self._source.location, revision, {}):
            # Also while a newer one is refused, which stays known. What was blocked by its model's
            # file may run by now; what runs and is blocked by now stays.
            known = frozenset(last.services)
            if new := tuple(label for label in labels if label not in known):
                more = replace(last, services=(*last.services, *new))
                self._write(replace(self._record, applied=more))
            return
        if git := self._git():
            git.keep(revision, str(self._file.path))
        now = Applied(
            location=self._source.location,
            ref=self._ref,
            revision=revision,
            files=tuple(sorted(loaded.files)),
            services=labels,
            applied_at=time.time(),
            objects=loaded.files,
            documents=in_force(loaded),
            fleet=self._fleet,
            root=self._source.root if isinstance(self._source, Committed) else "",
        )
        self._write(replace(self._record, applied=now, others={}))
        if accepted(self._file.path) == revision:
            withdraw(self._file.path)

    def _services_of(self, desired: Desired) -> tuple[str, ...]:
        """Return the services that this revision runs. A service that ran before, is declared still
        and is held is one of them: another fleet may not remove it unasked."""
        placed = tuple(w.ref.label for w in desired.assignment.workloads)
        last = self._record.applied
        is_ours = last is not None and self._is_ours(last)
        before = last.services if last and is_ours else self._record.others.get(self._fleet, ())
        declared = {ref.label for refs in desired.loaded.files.values() for ref in refs}
        known = frozenset(placed)
        return (*placed, *(s for s in before if s in declared and s not in known))

    @property
    def knows_this_fleet(self) -> bool:
        """Whether what was applied last is a revision of this fleet, by whatever branch."""
        return self._record.applied is not None and self._is_ours(self._record.applied)

    def _is_ours(self, applied: Applied) -> bool:
        """Whether it is a revision of this fleet: of this place, or of the same folder in a commit
        of this repository, which may be a clone of the other, or have moved."""
        revision = applied.revision
        if _home(applied) == self._fleet or revision in self._known:
            return True
        with contextlib.suppress(SourceError):  # what cannot be looked at is not known to be ours
            if is_commit(revision) and self._has(revision, applied.root):
                self._known.add(revision)  # "no" is not remembered: it may be fetched yet
        return revision in self._known

    def _has(self, revision: str, root: str) -> bool:
        source = self._source
        return isinstance(source, Committed) and source.root == root and source.knows(revision)

    def _write(self, record: SourceRecord) -> None:
        self._file.write(record)
        self._record = record

    def _git(self) -> Historied | None:
        """The source as one that has commits, for what only history can answer."""
        return self._source if isinstance(self._source, Historied) else None


def place_of(source: Source) -> SourcePlace | None:
    """Where the commits of a source are from; None: it has none."""
    if not isinstance(source, Historied):
        return None
    root = source.root if isinstance(source, Committed) else ""
    return SourcePlace(source.location, _ref_of(source), fleet_of(source), root)


def _had(git: Historied, revision: str) -> Checkout:
    """A commit, which is fetched by its id where it is not here. Raises SourceError."""
    try:
        return git.at(revision)
    except SourceError:
        git.bring(revision)
        return git.at(revision)


def _ref_of(source: Source) -> str:
    return str(getattr(source, "ref", "")) or _FILES


def _declaring(applied: Applied, loaded: Loaded) -> Applied:
    """Add what the revision declares, as `SourceJournal.applied` notes it."""
    refs = {ref for refs in loaded.files.values() for ref in refs}
    return replace(
        applied,
        files=tuple(sorted(loaded.files)),
        services=tuple(sorted(ref.label for ref in refs if ref.kind == "InferenceService")),
        objects=loaded.files,
        documents=in_force(loaded),
    )


def _limits(applied: Applied) -> tuple[int, float]:
    """Its Fleet's; where it had none, those that hold where nothing is said."""
    fleets = [d for d in applied.documents if d.get("kind") == "Fleet"]
    try:
        stated = Prune.model_validate(fleets[0]["spec"]["prune"])
    except (LookupError, TypeError, ValueError):  # nothing is stated
        stated = Prune()
    return stated.max_count, stated.max_share


def _services(applied: Applied) -> frozenset[str]:
    """Those that it declared; of a record that 0.1 wrote, those that it ran."""
    refs = {ref for refs in applied.objects.values() for ref in refs}
    declared = frozenset(ref.label for ref in refs if ref.kind == "InferenceService")
    return declared or frozenset(applied.services)


def _nodes(applied: Applied) -> frozenset[str]:
    nodes = (d for d in applied.documents if d.get("kind") == "FleetNode")
    return frozenset(str(d.get("metadata", {}).get("name")) for d in nodes)


def _home(applied: Applied) -> str:
    return applied.fleet or applied.location  # as 0.1 wrote it


def revision_state(record: SourceRecord, fetched: str | None = None) -> RevisionState:
    """The applied revision, and the verdict on the newest one."""
    verdict = record.verdict
    is_refused = verdict is not None and verdict.kind is VerdictKind.REFUSED
    return RevisionState(
        fetched=fetched,
        applied=record.applied.revision if record.applied else None,
        refused=verdict.revision if verdict and is_refused else None,
        problems=verdict.problems if verdict else (),
        held=verdict.message if verdict else "",
        lost=record.unreachable_why,
        lost_since=record.unreachable_since,
    )


def applied_location(history: Path) -> str | None:
    """Where the revision came from that was applied last, for commands that only read."""
    last = HistoryFile(history).peek().applied
    return last.location if last else None


def in_force(loaded: Loaded) -> tuple[dict[str, Any], ...]:
    """The Fleet and the FleetNodes as documents: they stand in where a later revision breaks
    one."""
    fleet = loaded.fleet or loaded.standing
    policies: tuple[FleetPolicy | FleetNode, ...] = (*fleet.all(FleetPolicy), *fleet.all(FleetNode))
    return tuple(
        thing.model_dump(by_alias=True, mode="json", exclude_unset=True) for thing in policies
    )
