"""reconcile_once, and the loop that decides when to call it.

Whatever happens (a push, a saved file, a child's exit) only wakes the loop: it carries no meaning,
the loop looks at everything again. A source that is gone or wrong changes nothing that runs.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from reconciler.desired import CachedFacts, Desired, no_facts
from reconciler.errors import ReconcilerError, SourceError
from reconciler.fleet import Fleet
from reconciler.plan import Observation, Plan, RevisionState
from reconciler.problem import Problem
from reconciler.source.checkout import Checkout, Source
from reconciler.source.history import Verdict
from reconciler.source.load import Loaded
from reconciler.source.slice import foreign
from reconciler.target import REMOVALS, Outcome, Target, apply_plan

log = logging.getLogger(__name__)
T = TypeVar("T")

Plans = Callable[[Desired, Observation, Iterable[str], str | None], Plan]
"""Desired.plan, or more: the plan for what was observed, what was confirmed, and whose fleet was
followed before, if it was another."""

_MOST_TOLD = 20  # lines at once


class Wake:
    """Reasons to look again, coalesced: any number of them is one look."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._look = False
        self._fetch = True
        self._stop = False

    def look(self) -> None:
        """A target changed."""
        self._set(look=True)

    def fetch(self) -> None:
        """The source may have moved."""
        self._set(look=True, fetch=True)

    def stop(self) -> None:
        self._set(look=True, stop=True)

    @property
    def stopped(self) -> bool:
        return self._stop

    def wait(self, timeout_s: float) -> bool:
        """Wait for a reason, at most so long. True: the source may have moved."""
        with self._changed:
            self._changed.wait_for(lambda: self._look, timeout_s)
            fetch, self._look, self._fetch = self._fetch, False, False
            return fetch

    def _set(self, *, look: bool = False, fetch: bool = False, stop: bool = False) -> None:
        with self._changed:
            self._look |= look
            self._fetch |= fetch
            self._stop |= stop
            self._changed.notify_all()


class Journal(Protocol):
    """What was applied before, across our own restarts."""

    @property
    def other_fleet(self) -> str | None:
        """Where the services that run now came from, if that is another fleet."""

    def accept(self, checkout: Checkout) -> Verdict:
        """Whether this revision may follow the applied one; an older head may not."""

    def lost(self) -> float:
        """The source gives nothing: since when, in epoch seconds."""

    def found(self) -> None:
        """The source answers."""

    def held_paths(self) -> frozenset[str]:
        """Files that held fleet documents in the revision that was applied last."""

    def last_good(self) -> Checkout | None:
        """The revision that was applied last, where the source still has it."""

    def applied(self, desired: Desired) -> None:
        """This revision is what the targets were made to be."""

    def refused(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        """This revision has errors."""

    def revision_state(self) -> RevisionState:
        """What was applied and what was refused, also in an earlier life of this program."""


class Reporter(Protocol):
    """Where the loop says what it sees. Called from the loop's thread only."""

    def planned(self, plan: Plan, desired: Desired) -> None: ...
    def applied(self, outcomes: tuple[Outcome, ...]) -> None: ...
    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None: ...
    def held(self, why: str) -> None: ...
    def source_lost(self, why: str, since: float) -> None: ...
    def source_back(self) -> None: ...
    def looked(self, observed: Observation) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """When to look. All in seconds."""

    poll_s: float = 30.0
    resync_s: float = 10.0  # look at the targets at least so often
    quiet_s: float = 0.0  # removals wait until the source has not moved for so long
    busy_s: float = 0.5  # look again so soon while the source is in the middle of something


@dataclass(slots=True)
class Loop:
    """Keeps a target equal to a source until told to stop. One thread runs it."""

    source: Source
    read: Callable[[Checkout, frozenset[str]], Loaded]
    target: Target
    journal: Journal
    report: Reporter
    wake: Wake
    timing: Timing = Timing()
    cached: CachedFacts = no_facts
    plans: Plans = Desired.plan
    adjusts: Callable[[Fleet], Fleet] = lambda fleet: fleet  # what this machine says of itself
    hears: Callable[[Desired], Desired] = lambda desired: desired  # what a look says of machines
    accepts: Callable[[Loaded], str | None] = lambda _: None  # why a valid revision is held
    follows: Callable[[Desired], None] = lambda _: None  # told of each revision, before its plan
    settled: Callable[[Desired], None] = lambda _: None  # once a revision has nothing left to do
    passed: Callable[[float], None] = lambda _: None  # after each pass, with the seconds it took
    busy: Callable[[], str | None] = lambda: None
    confirmed: frozenset[str] = frozenset()
    desired: Desired | None = None
    _seen: str | None = None  # the revision that was followed or refused last
    _moved_at: float = field(default_factory=time.monotonic)
    held: str | None = None  # why the newest revision is not followed, where it is not
    fetching: bool = False  # in the middle of a fetch, which may take long where git is slow
    fetched_at: float | None = None  # when the source answered last, in epoch seconds
    _fetched: str | None = None
    _is_lost: bool = False
    _settled: str | None = None
    _told: frozenset[str] = frozenset()

    def run(self) -> None:
        """Until `wake.stop()`."""
        next_poll, polls = 0.0, 0
        fetch = True
        while not self.wake.stopped:
            now = time.monotonic()
            if fetch or now >= next_poll:
                self.fetching = True
                self._guarded(self.fetch)
                self.fetching = False
                share = random.random()  # noqa: S311 - not for secrets
                next_poll = time.monotonic() + poll_delay_s(self.timing.poll_s, share, polls)
                polls += 1
            again_s = self._guarded(self.look) or self.timing.resync_s
            self.passed(time.monotonic() - now)
            pause = min(next_poll - time.monotonic(), again_s)
            fetch = self.wake.wait(max(0.0, pause))

    def _guarded(self, step: Callable[[], T]) -> T | None:
        """The loop's edge: what goes wrong in one pass is said, and the next pass tries again."""
        try:
            return step()
        except (ReconcilerError, OSError) as error:
            self.report.held(str(error))
        except Exception as error:
            log.exception("a bug of ours stopped this pass")
            self.report.held(f"a bug of ours stopped this pass: {type(error).__name__}: {error}")
        return None

    def fetch(self) -> None:
        """Read the source; keep the last good revision when it is gone, wrong or too old."""
        if why := self.busy():
            self.report.held(f"{why}: the plan waits until that is over")
            self._moved_at = time.monotonic()
            threading.Timer(self.timing.busy_s, self.wake.fetch).start()
            return
        try:
            checkout = self.source.fetch()
        except SourceError as error:
            self._is_lost = True
            self.report.source_lost(str(error), self.journal.lost())
            self._resume()
            return
        self.journal.found()
        self._fetched, self.fetched_at = checkout.revision, time.time()
        if self._is_lost:
            self._is_lost = False
            self.report.source_back()
        if checkout.revision == self._seen:
            return
        self._seen = None  # until it is followed: if not, it comes again, or the one before it does
        verdict = self.journal.accept(checkout)
        if verdict.message:
            self.report.held(verdict.message)
        self.held = None if verdict.take else verdict.message
        if verdict.take:
            self._moved_at = time.monotonic()
            self._follow(checkout)
            self._seen = checkout.revision
        self._resume()

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
            loaded = self.read(checkout, frozenset())
            if loaded.fleet is not None:
                self._turn_to(checkout, loaded, loaded.fleet)

    def _turn_to(self, checkout: Checkout, loaded: Loaded, fleet: Fleet) -> None:
        fleet = self.adjusts(fleet)
        self.desired = Desired.of(checkout, loaded, fleet, self.cached, self.desired)
        self.follows(self.desired)

    def _follow(self, checkout: Checkout) -> None:
        loaded = self.read(checkout, self.journal.held_paths())
        self._say_foreign(loaded)
        if loaded.fleet is None:
            self.journal.refused(checkout, loaded.problems)
            self.report.refused(checkout.revision, loaded.problems)
        elif why := self.accepts(loaded):
            self.held = why
            self.report.held(why)
        else:
            self._turn_to(checkout, loaded, loaded.fleet)
            if loaded.errors:  # of this node's own slice: what they concern is held
                self.journal.refused(checkout, loaded.errors)
                self.report.refused(checkout.revision, loaded.errors)

    def _say_foreign(self, loaded: Loaded) -> None:
        told = foreign(loaded)
        lines = sorted(told - self._told)
        for line in lines[:_MOST_TOLD]:
            log.warning("%s", line)
        if len(lines) > _MOST_TOLD:
            log.warning("and %d problems more that refuse nothing here", len(lines) - _MOST_TOLD)
        self._told = told

    def revision_state(self) -> RevisionState:
        """How far it is, for whoever asks this node. Safe to ask from any thread."""
        return replace(self.journal.revision_state(), fetched=self._fetched, held=self.held or "")

    def look(self) -> float:
        """Compare and apply once. Returns in how many seconds to look again at the latest."""
        if self.desired is None:
            return self.timing.resync_s
        # Facts of models that were downloaded meanwhile may change who fits.
        self.desired = self.desired.refreshed(self.cached)
        observed = self.target.observe(self.desired.assignment.workloads)
        if (told := self.hears(self.desired)) is not self.desired:
            self.desired = told
            self.follows(told)
        self.report.looked(observed)
        plan = self.plans(self.desired, observed, self.confirmed, self.journal.other_fleet)
        quiet_in = self._moved_at + self.timing.quiet_s - time.monotonic()
        self.report.planned(plan, self.desired)
        self.report.applied(apply_plan(plan, self.target, hold_removals=quiet_in > 0))
        waiting = quiet_in > 0 and any(c.action in REMOVALS for c in plan.changes)
        if not waiting and not any(item.token for item in plan.blocked):
            self.journal.applied(self.desired)
        self._settle(plan)
        return quiet_in if waiting else self.timing.resync_s

    def _settle(self, plan: Plan) -> None:
        assert self.desired is not None
        if self.desired.fleet.incomplete or self.desired.loaded.errors:
            return  # what is held may need more than what is declared
        if self._settled != plan.revision and all(c.is_shown_only for c in plan.changes):
            self._settled = plan.revision
            self.settled(self.desired)


def poll_delay_s(interval_s: float, share: float, polls: int) -> float:
    """Seconds until the next poll; `share` is a random number between 0 and 1.

    Machines that started together (a power cut, a roll-out) would ask one git server together for
    ever: the first pause is anything up to the interval (full jitter), later ones are as long as
    the interval on average and never the same.
    """
    return interval_s * (share if polls == 0 else 0.5 + share)
