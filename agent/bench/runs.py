"""The runs of one measurement: warm-ups first, then those that count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from agent.bench.client import ask_by_clock, ask_by_engine
from agent.bench.protocol import BenchmarkBudget
from agent.process.health import EngineAddress
from agent.system.clock import Clock
from reconciler.runtimes.runtime import Runtime
from reconciler.runtimes.timing import Timing


def make_runs(
    address: EngineAddress,
    row: Runtime,
    model: str,
    budget: BenchmarkBudget,
    clock: Clock,
    say: Callable[[str], None],
) -> tuple[list[Timing], list[Timing]]:
    """The runs that count, and all that were made. Raises BenchmarkError where one gets no
    answer."""
    if row.timings is not None:
        answers = ask_by_engine(address, row.timings, model)
    else:
        answers = ask_by_clock(address, model)
    warmups: list[Timing] = []
    for number in range(budget.warmups):
        say(f"warm-up {number + 1} of {budget.warmups}")
        warmups += islice(answers, 1)
    runs: list[Timing] = []
    began = clock.monotonic()
    while not budget.is_done(len(runs), clock.monotonic() - began):
        say(f"run {len(runs) + 1} of {budget.runs}")
        runs += islice(answers, 1)
    return runs, warmups + runs
