"""The loop over a fleet that runs in memory: everything real but the machines."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from reconciler.api.problem import Problem
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Change, Plan
from reconciler.core.target import Outcome, Result
from reconciler.fleet.workload import Workload
from reconciler.loop import Listener, Loop, Pass, Wake, steps_of
from reconciler.loop.desired import Desired
from reconciler.loop.journal import SourceJournal
from reconciler.source.history import HistoryFile
from reconciler.source.load import reader
from reconciler.source.open import open_source


class _Memory:
    """A target whose services run, ready at once, exactly as they were last wanted."""

    def __init__(self) -> None:
        self.running: dict[object, Instance] = {}

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        names = {f"node/{w.node}" for w in workloads}
        targets = {name: TargetState(name, reachable=True) for name in names}
        return Observation(targets, tuple(self.running.values()))

    def apply(self, change: Change) -> Outcome:
        return Outcome(change, Result.SKIPPED)

    def become(self, desired: Desired) -> None:
        self.running = {instance.ref: instance for instance in desired.instances()}


class _Kept(Listener):
    """Keeps the plan and fails on anything that a benchmark should not meet."""

    plan: Plan
    at: tuple[float, float]  # the clock and our CPU time when the plan was there

    def on_planned(self, planned: Pass) -> None:
        self.plan = planned.plan
        self.at = time.perf_counter(), time.process_time()

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        raise AssertionError("\n".join(map(str, problems)))

    def on_held(self, why: str) -> None:
        raise AssertionError(why)

    def on_rewritten(self, how: str) -> None:
        raise AssertionError(how)

    def on_source_lost(self, why: str, since: float) -> None:
        raise AssertionError(why)


class RunningFleet:
    """A loop as `--watch` builds it, with a target in memory that has become the files. Its record
    of what was applied is written beside `root`."""

    def __init__(self, root: Path) -> None:
        self._target, self._kept = _Memory(), _Kept()
        with tempfile.TemporaryDirectory() as cache:
            source = open_source(str(root), cache_dir=Path(cache), working_tree=True)
        journal = SourceJournal(HistoryFile(root.parent / "history.json"), source)
        self._loop = Loop(
            *(source, reader(), steps_of(self._target), journal, [self._kept], Wake())
        )

    @classmethod
    def started(cls, root: Path) -> Self:
        """Read once, and again when the files are old enough to be known by their stamps."""
        fleet = cls(root)
        fleet._loop.fetch()
        time.sleep(2.1)
        fleet._loop.fetch()
        fleet.apply()
        return fleet

    def plan_again(self) -> tuple[float, float]:
        """What a wake does. Milliseconds until the plan is there: wall, and CPU of this process."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        self._loop.fetch()
        self._loop.sync()
        return (self._kept.at[0] - wall_s) * 1e3, (self._kept.at[1] - cpu_s) * 1e3

    def changed(self) -> list[str]:
        return [change.ref.name for change in self._kept.plan.changes]

    def apply(self) -> None:
        assert self._loop.desired
        self._target.become(self._loop.desired)
