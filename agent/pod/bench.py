"""Measure the model of another pod over HTTP: what a benchmark's Job does in a cluster.

The process that serves is asked, with the settings of its service. Only what its engine tells can
be known of it here: who else used the machine cannot, so the runs have to agree with each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from agent.bench.protocol import MOST_VARIATION, BenchmarkBudget, figures
from agent.bench.runs import make_runs
from agent.pod.engine import Engine
from agent.process.health import EngineAddress
from agent.server.scrape import read_counter
from agent.system.clock import Clock, SystemClock
from reconciler.api.benchmark import BenchmarkKey, BenchmarkResult, Speeds
from reconciler.api.errors import BenchmarkError
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.timing import Timing

MOST_RUNS = 100  # so that a result fits into a termination message
_DECIMALS = 3
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class PodSubject:
    """One model of one pod. `service` is NAMESPACE/NAME."""

    host: str
    port: int
    model: str
    service: str
    node: str
    key: BenchmarkKey


@dataclass(frozen=True, slots=True)
class RemoteMeasurement:
    """`wait_s`: for requests in flight to end, before it begins."""

    subject: PodSubject
    budget: BenchmarkBudget
    wait_s: float
    most_variation: float = MOST_VARIATION
    say: Callable[[str], None] = lambda _: None
    clock: Clock = field(default_factory=SystemClock)

    def run(self) -> BenchmarkResult:
        """Raises BenchmarkError where nothing could be measured."""
        subject, clock = self.subject, self.clock
        self._wait_until_quiet()
        tokens_before = self._counted()
        began, began_wall = clock.monotonic(), clock.time()
        runs, asked = self._runs()
        jump_s = (clock.time() - began_wall) - (clock.monotonic() - began)
        others = tuple(self._others(tokens_before, asked))
        measured = figures(
            runs, most_variation=self.most_variation, others=others, clock_jump_s=jump_s
        )
        return BenchmarkResult(
            key=subject.key,
            service=subject.service,
            model=subject.model,
            node=subject.node,
            prompt=_short(measured.prompt),
            generation=_short(measured.generation),
            measured_at=round(clock.time(), 1),
            iterations=len(runs),
            warmup_iterations=self.budget.warmups,
            timings="engine" if RUNTIMES[subject.key.runtime].timings else "clock",
            problem=measured.problem,
        )

    @property
    def _engine(self) -> Engine:
        subject = self.subject
        names = (subject.model,)
        return Engine.beside(subject.key.runtime, subject.port, names, None, subject.host)

    def _wait_until_quiet(self) -> None:
        engine, until = self._engine, self.clock.monotonic() + self.wait_s
        # Connections are counted on their own machine alone.
        if engine.launch.command.probe.slots_path is None:
            return
        while busy := engine.requests_in_flight():
            requests = f"{busy} request{'s' * (busy > 1)}"
            if self.clock.monotonic() >= until:
                raise BenchmarkError(f"it serves {requests}, and nothing is measured beside them")
            self.say(f"waits for {requests} to end")
            time.sleep(_LOOK_EVERY_S)

    def _runs(self) -> tuple[list[Timing], list[Timing]]:
        subject = self.subject
        budget = replace(self.budget, runs=min(self.budget.runs, MOST_RUNS))
        address, row = EngineAddress(subject.host, subject.port), RUNTIMES[subject.key.runtime]
        return make_runs(address, row, subject.model, budget, self.clock, self.say)

    def _counted(self) -> float | None:
        """The engine's own counter of tokens; None: it does not tell."""
        row, host = RUNTIMES[self.subject.key.runtime], self.subject.host
        if row.metrics_path is None or row.tokens_metric is None:
            return None
        at = f"[{host}]" if ":" in host else host
        return read_counter(f"http://{at}:{self.subject.port}{row.metrics_path}", row.tokens_metric)

    def _others(self, before: float | None, asked: list[Timing]) -> Iterator[str]:
        """Tokens that were written meanwhile, and not for us."""
        after = self._counted()
        if before is None or after is None:
            return
        if after < before:
            raise BenchmarkError("its engine was started again in the middle of the measurement")
        written = round(after - before) - sum(run.generated + 1 for run in asked)
        if written > 0:
            yield f"{self.subject.service} wrote {written} tokens for others"


def _short(speeds: Speeds | None) -> Speeds | None:
    """Shorten the samples to what fits into a termination message."""
    if speeds is None:
        return None
    return Speeds.of(max(round(sample, _DECIMALS), 10**-_DECIMALS) for sample in speeds.samples)
