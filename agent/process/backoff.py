"""When a process that failed starts again. Pure, a part of supervisor.py."""

from __future__ import annotations

from dataclasses import replace

from agent.process.events import Note, ProcessTiming, Save
from agent.process.exits import PERMANENT, REFUSED
from agent.process.launch import Launch, Phase
from agent.process.unit import Step, Unit
from agent.system.clock import Moment
from reconciler.backoff import backoff_s


def pause_s(failures: int, reason: str, timing: ProcessTiming) -> float:
    """Seconds until the next try: doubling, but at once the longest if the same failure is certain
    to come again."""
    if reason in PERMANENT:
        return timing.backoff_max_s
    longest_s = timing.backoff_refused_s if reason in REFUSED else timing.backoff_max_s
    return backoff_s(failures, timing.backoff_first_s, longest_s)


def back_off(
    unit: Unit, reason: str, message: str, exit_code: int | None, now: Moment, timing: ProcessTiming
) -> Step:
    """After a process has ended by itself, or could not be started: wait, then try again. Failures
    count from one again once it was ready for long enough."""
    good_until = now.monotonic - (unit.still.for_s if unit.still else 0.0)
    proven = unit.ready_at is not None and good_until - unit.ready_at >= timing.backoff_reset_s
    failures = 1 if proven else unit.failures + 1
    delay_s = pause_s(failures, reason, timing)
    unit = replace(
        unit,
        phase=Phase.WAITING,
        child=None,
        failures=failures,
        exit_code=exit_code,
        ready_at=None,
        was_ready=False,
        ready_since=None,
        served=(),
        silent=(),
        reloading=None,
        listening=None,
        spawned_at=None,
        asking=False,
        missed=0,
        still=None,
        wake_at=now.monotonic + delay_s,
        reason=reason,
        message=message,
        since=now.wall,
    )
    return unit, (Save(), Note(f"{reason}: {message}; next try in {delay_s:g} s"))


def waiting(
    launch: Launch,
    reason: str,
    message: str,
    now: Moment,
    timing: ProcessTiming,
    *,
    failures: int = 0,
    start_seconds: float | None = None,
) -> Unit:
    """The unit of a wanted service that has no process yet."""
    return Unit(
        launch=launch,
        phase=Phase.WAITING,
        since=now.wall,
        reason=reason,
        message=message,
        failures=failures,
        start_seconds=start_seconds,
        wake_at=now.monotonic + pause_s(failures, reason, timing),
    )
