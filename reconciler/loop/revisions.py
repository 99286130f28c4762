"""Which revision a loop follows: the newest one that is there, valid and may follow the last."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reconciler.api.errors import ReconcilerError, SourceError
from reconciler.api.problem import Problem
from reconciler.core.observation import RevisionState
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import Desired
from reconciler.loop.failure import LoopStep, StepFailure
from reconciler.loop.interfaces import Following, Journal
from reconciler.loop.journal import revision_state
from reconciler.loop.listener import Listener
from reconciler.loop.steps import Steps
from reconciler.loop.wake import Wake
from reconciler.source.address import redact_url
from reconciler.source.checkout import Checkout, OnDisk, Source
from reconciler.source.history import RevisionVerdict, VerdictKind
from reconciler.source.load import Loaded, Reader
from reconciler.source.slice import foreign

log = logging.getLogger(__name__)

_MOST_TOLD = 20  # lines at once
_MOST_PROBLEMS = 100  # in the record


@dataclass(frozen=True, slots=True)
class LoopTiming:
    """When to look. All in seconds."""

    poll_s: float = 30.0
    resync_s: float = 10.0  # look at the targets at least so often
    quiet_s: float = 0.0  # removals wait until the source has not moved for so long
    busy_s: float = 0.5  # look again so soon while the source is in the middle of something
    settle_s: float = 0.0  # a new revision is followed once the source has been still for so long
    still_s: float = 1.0  # a model file is followed once it has not changed for so long


@dataclass(slots=True)
class Revisions:
    """Reads a source, and keeps the last good revision when it is gone, wrong or too old. One
    thread uses it; `fetching`, `fetched_at`, `failures` and `state` may be read from any."""

    source: Source
    read: Reader
    reread: Reader  # of the revision applied last, which may have been applied in part
    journal: Journal
    listeners: Listener
    wake: Wake
    steps: Steps
    timing: LoopTiming
    desired: Desired | None = None  # what is followed
    failures: Mapping[LoopStep, StepFailure] = field(
        default_factory=dict
    )  # those of the last attempts
    fetching: bool = False  # in the middle of a fetch, which may take long where git is slow
    fetched_at: float | None = None  # when the source answered last, in epoch seconds
    rewritten: str = ""  # what was said of the head that is followed
    clock: Callable[[], float] = time.monotonic
    moved_at: float = field(init=False)  # when it had something new last, by the clock
    _fetched: str | None = None
    _seen: str | None = None  # the revision that was followed or refused last
    _is_lost: bool = False
    _has_recalled: bool = False
    _noted_fleet: str = ""
    _changes: Mapping[str, object] = field(default_factory=dict)  # of model files, seen last
    _changed_at: float = 0.0
    _moving: str | None = None  # the revision that waits for the source to be still
    _moving_since: float = 0.0
    _again: threading.Timer | None = None
    _reported: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.moved_at = self.clock()

    @property
    def quiet_in_s(self) -> float:
        """For how long removals wait still; 0 or less: they need not."""
        return self.moved_at + self.timing.quiet_s - self.clock()

    def fetch(self) -> None:
        """Read the source, and follow what it has where that may be. Raises ReconcilerError where
        what is new cannot be followed now: it comes again with the next fetch."""
        self.fetching = True
        try:
            self._fetch()
        finally:
            self.fetching = False

    def refresh(self) -> Desired | None:
        """What is followed, with what is known of its models now: downloads may have ended, and
        change who fits. None: nothing is followed."""
        if self.desired is not None:
            self.desired = self.desired.refreshed(self.steps.facts)
        return self.desired

    def follow(self, desired: Desired) -> None:
        """Follow this from now on."""
        self.desired = desired
        self.steps.follow(desired)
        self.listeners.on_followed(desired)

    @property
    def verdict(self) -> RevisionVerdict | None:
        """The reason that the newest revision is not followed, or not as a whole."""
        return self.journal.record.verdict

    def state(self) -> RevisionState:
        """How far it is, for this node's state."""
        known = revision_state(self.journal.record, self._fetched)
        failed = (failure.message for failure in self.failures.values())
        return replace(known, held=known.held or next(failed, ""))

    def following(self) -> Following:
        """What is followed, and why not the newest revision."""
        failed = self.failures.get(LoopStep.FETCH)
        return Following(
            location=self.source.location,
            ref=str(getattr(self.source, "ref", "")),
            head=self._fetched,
            followed=self.desired.fleet.revision if self.desired else None,
            record=self.journal.record,
            rewritten=self.rewritten,
            failed=failed.message if failed else "",
            noted_fleet=self._noted_fleet,
        )

    def _fetch(self) -> None:
        if why := self.steps.gate.busy_reason():
            self.listeners.on_held(f"{why}: the plan waits until that is over")
            self.moved_at = self.clock()
            self._fetch_in(self.timing.busy_s)
            return
        try:
            checkout = self.source.fetch()
        except SourceError as error:
            self._is_lost = True
            why = str(error)
            self.listeners.on_source_lost(why, self.journal.lost(why))
            self._recall()
            self._resume()
            return
        self.journal.source_answered()
        self._fetched, self.fetched_at = checkout.revision, time.time()
        if self._is_lost:
            self._is_lost = False
            self.listeners.on_source_back()
        if checkout.revision == self._seen and not self._has_other_files(checkout.revision):
            return
        if self._is_moving(checkout.revision):
            return
        self._recall()
        self._seen = None  # until it is followed: if not, it comes again, or the one before it does
        head = self.journal.accept(checkout, self.steps.gate.acceptance())
        self.rewritten = head.message if head.take else ""
        if not head.take:
            self._hold(VerdictKind.HELD, checkout, head.message, waits_for_a_person=True)
        else:
            if head.message:
                self.listeners.on_rewritten(head.message)
            self.moved_at = self.clock()
            try:
                self._examine(checkout)
                self._seen = checkout.revision
            except (ReconcilerError, OSError):
                self._resume()
                raise
            except Exception as error:
                message = StepFailure.of(error).message
                if self.verdict is None or self.verdict.message != message:
                    log.exception("revision %s cannot be examined", checkout.revision[:12])
                self._hold(VerdictKind.FAILED, checkout, message)
        self._resume()

    def _is_moving(self, revision: str) -> bool:
        """Whether somebody is still saving: several saves within a moment are one change, and start
        a model once. The first revision is followed at once."""
        now = self.clock()
        if revision != self._moving:
            self._moving, self._moving_since = revision, now
        left_s = self._moving_since + self.timing.settle_s - now
        if self._seen is None or left_s <= 0:
            return False
        self._fetch_in(left_s)
        return True

    def _has_other_files(self, revision: str) -> bool:
        """Whether what is followed names model files that are not as they were. One that is being
        copied is looked at until it is still: half of it is not a model."""
        followed = self.desired.checkout if self.desired else None
        if not isinstance(followed, OnDisk) or followed.revision != revision:
            return False
        changes, now = followed.changes(), self.clock()
        if changes != self._changes:
            self._changes, self._changed_at = changes, now
        left_s = self._changed_at + self.timing.still_s - now
        if changes and left_s > 0:
            self._fetch_in(left_s)
        return bool(changes) and left_s <= 0

    def _fetch_in(self, seconds: float) -> None:
        """One timer at a time: a file that is being copied wakes the loop many times a second."""
        if self._again is not None:
            return

        def again() -> None:
            self._again = None  # first: a woken waiter may ask for the next one
            self.wake.fetch()

        self._again = threading.Timer(seconds, again)
        self._again.daemon = True
        self._again.start()

    def _recall(self) -> None:
        """At our start: what another process, or an earlier life of this one, followed last."""
        if self.desired is not None or self._has_recalled:
            return
        try:
            noted = self.steps.gate.noted()
        except ReconcilerError as error:  # nothing can be applied there now either
            log.debug("what was followed last is not known: %s", error)
            return
        if noted is not None:
            self._noted_fleet = noted.name
            self.journal.recall(noted, lambda checkout: self.read(checkout, frozenset()))
        self._has_recalled = True

    def _resume(self) -> None:
        """After our own restart, when the newest revision cannot be had or used: the last good."""
        if self.desired is not None:
            return
        try:
            checkout = self.journal.last_good()
        except SourceError as error:
            log.debug("the last good revision cannot be read: %s", error)
            return
        if checkout is not None:
            try:
                loaded = self.reread(checkout, self.journal.held_paths())
                if loaded.fleet is not None:
                    self._turn_to(checkout, loaded, loaded.fleet)
            except (ReconcilerError, OSError):
                raise
            except Exception:  # what runs goes on without a revision
                log.exception("revision %s, applied last, cannot be read", checkout.revision[:12])

    def _turn_to(self, checkout: Checkout, loaded: Loaded, fleet: Fleet) -> None:
        fleet = self.steps.overlay(fleet)
        facts = self.steps.facts
        self.follow(Desired.of(checkout, loaded, fleet, facts, self.desired))

    def _examine(self, checkout: Checkout) -> None:
        """Follow it, or say why not."""
        loaded = self.read(checkout, self.journal.held_paths())
        self._say_foreign(loaded)
        if loaded.fleet is None:
            self._refuse(checkout, loaded.problems)
        elif why := self._hold_reason(loaded):
            self._hold(VerdictKind.HELD, checkout, why)
        else:
            self._turn_to(checkout, loaded, loaded.fleet)
            if loaded.errors:  # of this node's own slice: what they concern is held
                self._refuse(checkout, loaded.errors)
            else:
                self.journal.judged(None)

    def _refuse(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        lines = tuple(str(problem) for problem in problems[:_MOST_PROBLEMS])
        self.journal.judged(
            RevisionVerdict(VerdictKind.REFUSED, checkout.revision, time.time(), problems=lines)
        )
        self.listeners.on_refused(checkout.revision, problems)

    def _hold(
        self, kind: VerdictKind, checkout: Checkout, why: str, *, waits_for_a_person: bool = False
    ) -> None:
        self.listeners.on_held(why)
        self.journal.judged(
            RevisionVerdict(
                kind,
                checkout.revision,
                time.time(),
                why,
                waits_for_a_person=waits_for_a_person,
            )
        )

    def _hold_reason(self, loaded: Loaded) -> str | None:
        assert loaded.fleet is not None, "only valid revisions may be held"
        before = self.journal.before
        if not loaded.fleet.objects:  # a wrong folder or branch is likelier than a fleet's end
            if before.revision is None:
                return no_fleet_at(self.source)
            return f"{loaded.fleet.revision[:12]} holds no fleet document: held, as it runs"
        return self.steps.gate.hold_reason(loaded.fleet, before)

    def _say_foreign(self, loaded: Loaded) -> None:
        notes = foreign(loaded)
        lines = sorted(notes - self._reported)
        for line in lines[:_MOST_TOLD]:
            log.warning("%s", line)
        if len(lines) > _MOST_TOLD:
            log.warning("and %d problems more that refuse nothing here", len(lines) - _MOST_TOLD)
        self._reported = notes


def no_fleet_at(source: Source) -> str:
    """For people whose folder or repository has no document of ours, and never had."""
    return (
        f"{redact_url(source.location)} holds no fleet document: is it the right folder, branch and"
        " --path? `reconcile init` writes a first fleet"
    )
