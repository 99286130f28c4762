"""Measure one model of one process that serves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.bench.protocol import MOST_VARIATION, BenchmarkBudget, figures
from agent.bench.runs import make_runs
from agent.bench.subject import BenchmarkSubject
from agent.machine.machine import Machine
from agent.machine.utilisation import Busyness, busyness
from agent.process import health
from agent.process.identity import is_ours
from agent.process.launch import Phase, ProcessSnapshot
from agent.process.records import ProcessRecord
from agent.server.sampler import Counted, counters
from agent.server.scrape import read_counter
from agent.state.apikey import sent_key
from agent.system.clock import Clock, SystemClock
from reconciler.api.benchmark import BenchmarkResult
from reconciler.api.errors import BenchmarkError
from reconciler.fleet.command import ServedModel
from reconciler.runtimes.timing import Timing

_LOOK_EVERY_S = 0.2
_IDLE_LOOK_S = 1.0
_IDLE_CORES = 0.5  # what a machine does anyway
_IDLE_DEVICE = 0.1


@dataclass(frozen=True, slots=True)
class Rules:
    """What a person may say of a measurement. `wait_s`: for requests in flight to end."""

    wait_s: float = 30.0
    beside_traffic: bool = False
    most_variation: float = MOST_VARIATION
    idle_look_s: float = _IDLE_LOOK_S
    machine: Machine = field(default_factory=Machine)
    clock: Clock = field(default_factory=SystemClock)


def measure(
    subject: BenchmarkSubject,
    records: Callable[[], Iterable[ProcessRecord]],
    node: str,
    rules: Rules,
    say: Callable[[str], None] = lambda _: None,
) -> BenchmarkResult:
    """Measure it; `records` reads all that run here, whose traffic is noted. Raises BenchmarkError
    where nothing could be measured: it serves requests, gives no answer, or ends meanwhile."""
    budget, clock = BenchmarkBudget.of(subject.launch.inputs.get("lifecycle", {})), rules.clock
    traffic = _quiet(subject, rules, say)
    say("looking whether the machine is idle")
    counted = tuple(counters(_snapshots(records())))
    before, tokens_before = busyness(rules.machine, rules.idle_look_s), _read(counted)
    began, began_wall = clock.monotonic(), clock.time()
    runs, asked = _runs(subject, budget, clock, say)
    jump_s = (clock.time() - began_wall) - (clock.monotonic() - began)
    if not is_ours(subject.child):
        raise BenchmarkError(_ended(subject))
    tokens_after = _read(counted)
    after = busyness(rules.machine, rules.idle_look_s)
    ours = sum(run.generated + 1 for run in asked)
    others = (*traffic, *_others(subject, tokens_before, tokens_after, ours))
    measured = figures(
        runs, most_variation=rules.most_variation, others=others, clock_jump_s=jump_s
    )
    return BenchmarkResult(
        key=subject.key,
        service=subject.launch.ref.label,
        model=subject.model,
        node=node,
        prompt=measured.prompt,
        generation=measured.generation,
        load_seconds=_load_s(subject, records()),
        measured_at=clock.time(),
        iterations=len(runs),
        warmup_iterations=budget.warmups,
        timings="engine" if subject.row.timings else "clock",
        device_memory_bytes=subject.device_bytes,
        busy=(*_at_work("before", before), *_at_work("after", after)),
        problem=measured.problem,
    )


def _runs(
    subject: BenchmarkSubject, budget: BenchmarkBudget, clock: Clock, say: Callable[[str], None]
) -> tuple[list[Timing], list[Timing]]:
    """The runs that count, and all that were made; an error names what was measured."""
    address = health.EngineAddress.of(subject.launch)
    try:
        return make_runs(address, subject.row, subject.model, budget, clock, say)
    except BenchmarkError as error:
        if not is_ours(subject.child):
            raise BenchmarkError(_ended(subject)) from error
        raise BenchmarkError(f"{subject.label}: {error}") from error


def _ended(subject: BenchmarkSubject) -> str:
    name = subject.launch.ref.label
    return (
        f"{subject.label}: its process ended in the middle of the measurement, and nothing is kept"
        f" of it; see fleet-agent logs {name}"
    )


def _quiet(subject: BenchmarkSubject, rules: Rules, say: Callable[[str], None]) -> tuple[str, ...]:
    """Wait until no request is in flight; returns what still is, where that is allowed."""
    until = rules.clock.monotonic() + rules.wait_s
    while busy := health.requests_in_flight(subject.launch):
        if rules.beside_traffic:
            return (f"{busy} request{'s' * (busy > 1)} in flight at the start",)
        if rules.clock.monotonic() >= until:
            raise BenchmarkError(
                f"{subject.label} serves {busy} request{'s' * (busy > 1)}; wait longer with --wait,"
                " or measure with --beside-traffic, which publishes nothing"
            )
        say(f"waiting for {busy} request{'s' * (busy > 1)} to end")
        time.sleep(_LOOK_EVERY_S)
    return ()


def _load_s(subject: BenchmarkSubject, records: Iterable[ProcessRecord]) -> float | None:
    """How long its process took to be ready, by its record now: its agent notes that a moment
    later. None of a router, whose models come and go."""
    own = (r for r in records if r.child is not None and r.child.marker == subject.child.marker)
    return None if subject.row.serves_many else next((r.start_seconds for r in own), None)


def _snapshots(records: Iterable[ProcessRecord]) -> Iterator[ProcessSnapshot]:
    """What lives, as the counters of engines are found for."""
    for record in records:
        if record.child is not None and is_ours(record.child):
            yield ProcessSnapshot(
                launch=record.launch,
                phase=Phase.READY,
                ready=True,
                reason="Ready",
                message="",
                since=record.child.spawned_at,
                pid=record.child.identity.pid,
                served=tuple(ServedModel(name, "loaded") for name in record.launch.models),
            )


def _read(counted: Iterable[Counted]) -> dict[Counted, float]:
    """The engines' counters of tokens; without those that do not tell."""
    keys = {c: None if c.key_file is None else sent_key(c.key_file) for c in counted}
    read = {c: read_counter(c.url, c.metric, key=key) for c, key in keys.items()}
    return {c: value for c, value in read.items() if value is not None}


def _others(
    subject: BenchmarkSubject,
    before: Mapping[Counted, float],
    after: Mapping[Counted, float],
    ours: int,
) -> Iterator[str]:
    """Tokens that were written meanwhile, and not for us."""
    for counted, value in after.items():
        written = round(value - before.get(counted, value))
        if (counted.ref, counted.model) == (subject.launch.ref, subject.model):
            written -= ours
        if written > 0:
            yield f"{counted.ref.label} wrote {written} tokens for others"


def _at_work(when: str, seen: Busyness) -> Iterator[str]:
    if seen.cores > _IDLE_CORES:
        yield f"{seen.cores:.1f} of {seen.of_cores} cores at work {when}"
    for number, share in enumerate(seen.devices):
        if share is not None and share > _IDLE_DEVICE:
            yield f"device {number} at work {when} ({share:.0%})"
