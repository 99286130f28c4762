"""Compares a target with the revision that is followed, and makes it equal."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from weakref import ref

from reconciler.api.errors import StateError
from reconciler.core.plan import Plan
from reconciler.core.target import REMOVALS
from reconciler.loop.desired import Desired
from reconciler.loop.failure import LoopStep, StepFailure
from reconciler.loop.interfaces import Journal
from reconciler.loop.listener import Listener, Listeners, Pass
from reconciler.loop.revisions import LoopTiming, Revisions
from reconciler.loop.steps import Steps
from reconciler.loop.wake import Wake
from reconciler.source.checkout import Source
from reconciler.source.history import RevisionVerdict
from reconciler.source.load import Loaded, Reader

log = logging.getLogger(__name__)
T = TypeVar("T")


class Loop:
    """Keeps a target equal to a source until told to stop. One thread runs it."""

    def __init__(
        self,
        source: Source,
        read: Reader,
        steps: Steps,
        journal: Journal,
        listeners: Iterable[Listener],
        wake: Wake,
        *,
        timing: LoopTiming = LoopTiming(),  # noqa: B008 - frozen
        confirmed: frozenset[str] = frozenset(),
        reread: Reader | None = None,
    ) -> None:
        """`confirmed`: objects that may go although the fleet's limits ask for a confirmation.
        `reread`: reads the revision applied last, after a restart. It may have been applied in
        part, so its errors hold the objects they concern. None: `read`."""
        self.listeners = Listeners(listeners)
        readers = (read, reread or read)
        self.revisions = Revisions(source, *readers, journal, self.listeners, wake, steps, timing)
        self.wake = wake
        self._steps = steps
        self._journal = journal
        self.confirmed = confirmed
        self._converged: ref[Loaded] | None = None  # weak: it is as large as a fleet

    @property
    def desired(self) -> Desired | None:
        """What is followed."""
        return self.revisions.desired

    @property
    def verdict(self) -> RevisionVerdict | None:
        """The reason that the newest revision is not followed, or not as a whole."""
        return self.revisions.verdict

    @property
    def timing(self) -> LoopTiming:
        return self.revisions.timing

    def run(self) -> None:
        """Until `wake.stop()`."""
        next_poll, is_first, pause_s = 0.0, True, 0.0
        while True:
            fetch = self.wake.wait(pause_s)
            if self.wake.stopped:
                return
            now = time.monotonic()
            if fetch or now >= next_poll:
                self._guarded(self.fetch)
                share = random.random()  # noqa: S311 - not for secrets
                delay_s = poll_delay_s(self.timing.poll_s, share, is_first=is_first)
                next_poll = time.monotonic() + delay_s
                is_first = False
            again_s = self._guarded(self.sync) or self.timing.resync_s
            self.listeners.on_ended(time.monotonic() - now)
            pause_s = max(0.0, min(next_poll - time.monotonic(), again_s))

    def fetch(self) -> None:
        """Read the source: see `Revisions.fetch`."""
        try:
            with self._noted(LoopStep.FETCH):
                self._steps.prepare()
                self.revisions.fetch()
        finally:
            self.listeners.on_fetched(self.revisions.following())

    def compare(self) -> Pass | None:
        """A sync with its last step left out: what would be applied now. None: there is no revision
        to follow."""
        self._steps.prepare()
        desired = self.revisions.refresh()
        if desired is None:
            return None
        observed = self._steps.observe(desired)
        overlaid = self._steps.agent_overlay(desired)
        if overlaid is not desired:
            self.revisions.follow(overlaid)
        self.listeners.on_observed(observed)
        plan = self._steps.plan(overlaid, observed, self.confirmed, self._journal.before)
        return Pass(overlaid, observed, plan)

    def sync(self) -> float:
        """Compare and apply once. Returns in how many seconds to do so again at the latest."""
        with self._noted(LoopStep.SYNC):
            return self._sync()

    def _sync(self) -> float:
        planned = self.compare()
        if planned is None:
            return self.timing.resync_s
        plan, desired = planned.plan, planned.desired
        quiet_in_s = self.revisions.quiet_in_s
        self.listeners.on_planned(planned)
        self._journal.begins(desired)
        outcomes = self._steps.apply(plan, hold_removals=quiet_in_s > 0)
        self.listeners.on_applied(replace(planned, outcomes=outcomes))
        waiting = quiet_in_s > 0 and any(c.action in REMOVALS for c in plan.changes)
        if not waiting and not any(item.token for item in plan.blocked):
            self._remember(desired)
        self._say_converged(plan, desired)
        return quiet_in_s if waiting else self.timing.resync_s

    def _remember(self, desired: Desired) -> None:
        """What a full disk keeps from being noted was applied all the same, and is noted later."""
        try:
            with self._noted(LoopStep.NOTE):
                self._journal.applied(desired)
        except StateError as error:
            self.listeners.on_held(str(error))

    def _say_converged(self, plan: Plan, desired: Desired) -> None:
        """Once for each revision, and for each change of its model files."""
        if desired.fleet.incomplete or desired.loaded.errors:
            return  # what is held may need more than what is declared
        is_reported = self._converged is not None and self._converged() is desired.loaded
        if not is_reported and all(change.is_shown_only for change in plan.changes):
            self._converged = ref(desired.loaded)
            self.listeners.on_converged(desired)

    def _guarded(self, step: Callable[[], T]) -> T | None:
        """The loop's edge: report an error of one pass. The next pass tries again."""
        before = self.revisions.failures
        try:
            return step()
        except Exception as error:
            failure = StepFailure.of(error)
            if failure.is_defect and failure not in before.values():
                log.exception("a bug in this program stopped this pass")
            self.listeners.on_held(failure.message)
        return None

    @contextlib.contextmanager
    def _noted(self, step: LoopStep) -> Iterator[None]:
        """Store why a step failed until it succeeds. Other threads read it."""
        try:
            yield
        except Exception as error:
            self._set_failures({**self.revisions.failures, step: StepFailure.of(error)})
            raise
        failures = self.revisions.failures
        self._set_failures({known: f for known, f in failures.items() if known is not step})

    def _set_failures(self, failures: Mapping[LoopStep, StepFailure]) -> None:
        if failures != self.revisions.failures:
            self.revisions.failures = failures
            self.listeners.on_failures(failures)


def poll_delay_s(interval_s: float, share: float, *, is_first: bool) -> float:
    """Seconds from one poll to the next; `share` is a random number between 0 and 1.

    Machines that started together (a power cut, a roll-out) would ask one git server together for
    ever: the first pause is anything up to the interval (full jitter), later ones are as long as
    the interval on average and never the same.
    """
    return interval_s * (share if is_first else 0.5 + share)
