"""Decide what to do next with one service's process. Pure: events in, effects out.

`step(unit, event, now)` is the whole of it. A Unit is one service on this node; None is a service
that is not wanted and has no process. The caller carries out the effects in order and feeds back
their results: that of `Spawn` (Spawned or SpawnFailed) before any other event.

    WAITING --tick--> SPAWNING --spawned--> LOADING --answers--> READY
       ^                  | failed             |                   | stop, or a different launch
       +------------------+--------exited------+-------------------+---> DRAINING
                                                                           | idle, or deadline
                          forgotten, or SPAWNING the successor             v
                                     ^-------- exited -------- TERMINATING --> KILLING

A process is restarted only after it has died, by a command, or after minutes in which it neither
answered nor computed anything. Slowness, clock jumps and failing probes of a live process are
reported and change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from agent.process import reloading
from agent.process.answers import answered
from agent.process.backoff import back_off
from agent.process.events import (
    Answered,
    Event,
    Exited,
    Forget,
    Note,
    ProcessTiming,
    Reload,
    RestartRequested,
    Rewritten,
    Run,
    Save,
    SlotsAnswered,
    Spawn,
    Spawned,
    SpawnFailed,
    Stop,
    Tick,
    Update,
    Woke,
)
from agent.process.hang import ended_because
from agent.process.launch import Child, Launch, Phase, ProcessSnapshot
from agent.process.model_state import ReloadStage
from agent.process.quarantine import shown_models, with_unverified
from agent.process.stopping import ask_slots, begin_stop, end_drain, kill, slots_answered
from agent.process.unit import Step, Unit, ask_ready, first_question, with_reason
from agent.system.clock import Moment


def step(unit: Unit | None, event: Event, now: Moment, timing: ProcessTiming) -> Step:
    """The next state of a unit after an event, and the effects to carry out."""
    if isinstance(event, Run):
        return _run(unit, event.launch, now, timing)
    if isinstance(event, Reload):
        return _reload(unit, event, now, timing)
    if unit is None:
        return None, ()
    match event:
        case Update(launch) if unit.phase is Phase.RELOADING and _only_drains(unit):
            return _back_to_work(unit, launch, now), (Save(),)
        case Update(launch):
            return _update(unit, launch), (Save(),)
        case RestartRequested():
            return _restart(unit, now, timing)
        case Stop():
            return _stop(unit, now, timing)
        case Spawned():
            return _spawned(unit, event, now, timing)
        case SpawnFailed(reason, message):
            return back_off(unit, reason, message, None, now, timing)
        case Exited():
            return _exited(unit, event, now, timing)
        case Answered():
            return answered(unit, event, now, timing)
        case SlotsAnswered() if unit.phase is Phase.RELOADING:
            return reloading.slots_answered(unit, event, now, timing)
        case SlotsAnswered():
            return slots_answered(unit, event, now, timing)
        case Rewritten():
            return reloading.rewritten(unit, event, now, timing)
        case Tick():
            return _tick(unit, now, timing)
        case Woke():
            return _woke(unit, now)
        case _:
            assert_never(event)


def adopted(
    launch: Launch,
    child: Child,
    now: Moment,
    *,
    was_ready: bool = False,
    ready_since: float | None = None,
    failures: int = 0,
    start_seconds: float | None = None,
) -> Unit:
    """The unit of a process from an earlier run of the agent; a Tick is due at once."""
    return Unit(
        launch=launch,
        phase=Phase.LOADING,
        since=now.wall,
        reason="Adopted",
        message="found running; probing it",
        child=child,
        question=first_question(child),
        was_ready=was_ready,
        ready_since=ready_since,
        failures=failures,
        start_seconds=start_seconds,
        wake_at=now.monotonic,
    )


def show(unit: Unit, timing: ProcessTiming) -> ProcessSnapshot:
    """The snapshot of a unit."""
    return ProcessSnapshot(
        launch=unit.launch,
        phase=unit.phase,
        ready=unit.is_ready(timing),
        reason=unit.reason,
        message=unit.message,
        since=unit.since,
        pid=unit.child.identity.pid if unit.child else None,
        adopted=unit.child is not None and unit.child.adopted,
        failures=unit.failures,
        exit_code=unit.exit_code,
        start_seconds=unit.start_seconds,
        stopping=not unit.is_wanted,
        served=shown_models(unit, timing),
        successor=unit.successor,
    )


def _run(unit: Unit | None, launch: Launch, now: Moment, timing: ProcessTiming) -> Step:
    if unit is None:
        return _spawn(Unit(launch, Phase.SPAWNING, now.wall, "Starting"), launch, now)
    same = launch.same_process(unit.launch)
    if same and _only_drains(unit):
        return _back_to_work(unit, launch, now), (Save(),)
    if unit.phase.is_stopping:
        return _set_successor(unit, launch, now)
    if same:
        return _update(unit, launch), (Save(),)
    if unit.phase is Phase.WAITING:
        return _spawn(unit, launch, now)
    return begin_stop(unit, launch, now, timing)


def _set_successor(unit: Unit, launch: Launch, now: Moment) -> Step:
    """Start this launch after the process that is ending. Repeated in every pass until then, it
    counts as a change only once: each visible change wakes the loop, which would repeat it."""
    if unit.successor is not None and launch.same_process(unit.successor):
        launch = unit.successor.described_by(launch)
        if launch == unit.successor:
            return unit, ()
    return with_reason(replace(unit, successor=launch), "Replacing", unit.message, now), (Save(),)


def _reload(unit: Unit | None, event: Reload, now: Moment, timing: ProcessTiming) -> Step:
    """Only a live process can reload; otherwise start with the new launch."""
    launch = event.launch
    alive = unit is not None and unit.phase in (Phase.LOADING, Phase.READY, Phase.RELOADING)
    hangs = unit is not None and unit.still is not None and unit.still.is_hung(timing)
    if unit is None or not alive or hangs or not launch.same_program(unit.launch):
        return _run(unit, launch, now, timing)
    if launch.same_process(unit.intended):  # repeated; or already running
        return (unit, ()) if unit.reloading else (_update(unit, launch), (Save(),))
    return reloading.reload(unit, event, now, timing)


def _only_drains(unit: Unit) -> bool:
    """Whether its process has not been signalled or rewritten yet, and still matches its launch."""
    if unit.reloading is None:
        return unit.phase is Phase.DRAINING
    return unit.phase is Phase.RELOADING and unit.reloading.stage is ReloadStage.DRAINING


def _update(unit: Unit, launch: Launch) -> Unit:
    if unit.successor is not None:
        return replace(unit, successor=unit.successor.described_by(launch))
    described = unit.launch.described_by(launch)
    if unit.reloading is not None:
        unit = replace(unit, reloading=replace(unit.reloading, launch=described))
    return replace(unit, launch=described)


def _restart(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    if unit.phase is Phase.WAITING:
        return _spawn(unit, unit.launch, now)
    if unit.phase.is_stopping:  # a new process is coming, or none is wanted
        return unit, ()
    return begin_stop(unit, unit.intended, now, timing)


def _stop(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    if unit.phase is Phase.WAITING:
        return None, (Forget(), Note("stopped: it had no process"))
    if unit.phase.is_stopping:
        return with_reason(replace(unit, successor=None), "Stopping", unit.message, now), (Save(),)
    return begin_stop(unit, None, now, timing)


def _spawn(unit: Unit, launch: Launch, now: Moment) -> Step:
    """Start a launch. Only the measured start time is kept of the previous one, and the failures if
    it is the same launch again."""
    again = launch.same_process(unit.launch) and unit.phase is Phase.WAITING
    fresh = Unit(
        launch=launch,
        phase=Phase.SPAWNING,
        since=now.wall,
        reason="Starting",
        failures=unit.failures if again else 0,
        exit_code=unit.exit_code if again else None,
        start_seconds=unit.start_seconds,
        question=unit.question,
        quarantined=unit.quarantined if again else (),
    )
    return fresh, (Spawn(launch, fresh.left_out),)


def _spawned(unit: Unit, event: Spawned, now: Moment, timing: ProcessTiming) -> Step:
    child = event.child
    unit = replace(
        unit,
        quarantined=with_unverified(unit.quarantined, event.unverified, now, timing),
        phase=Phase.LOADING,
        child=child,
        question=max(unit.question, first_question(child)),
        spawned_at=None if child.adopted else now.monotonic,
        interval_s=timing.probe_first_s,
        wake_at=now.monotonic + timing.probe_first_s,
    )
    how = "adopted, without a record," if child.adopted else "started"
    note = Note(f"{how} pid {child.identity.pid} on port {unit.launch.port}")
    return with_reason(unit, "Loading", "", now), (Save(), note)


def _exited(unit: Unit, event: Exited, now: Moment, timing: ProcessTiming) -> Step:
    if not unit.phase.is_stopping:
        unit = replace(unit, launch=unit.intended)
        return back_off(unit, event.reason, event.message, event.exit_code, now, timing)
    if unit.successor is not None and unit.reason == "NotResponding":  # ended because it hung
        unit = replace(unit, launch=unit.successor, successor=None)
        return back_off(unit, unit.reason, ended_because(timing), None, now, timing)
    if unit.successor is None:
        return None, (Forget(), Note("stopped"))
    return _spawn(unit, unit.successor, now)


def _tick(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    if unit.wake_at is None or now.monotonic < unit.wake_at:
        return unit, ()
    match unit.phase:
        case Phase.WAITING:
            return _spawn(unit, unit.launch, now)
        case Phase.LOADING | Phase.READY:
            return ask_ready(unit)
        case Phase.RELOADING:
            return reloading.tick(unit, now)
        case Phase.DRAINING if now.monotonic >= unit.drain_until:
            return end_drain(unit, now, timing)
        case Phase.DRAINING if not unit.launch.command.probe.counts_requests:
            return replace(unit, wake_at=unit.drain_until), ()
        case Phase.DRAINING:
            unit, question = ask_slots(unit)
            return unit, (question,)
        case Phase.TERMINATING | Phase.KILLING:
            return kill(unit, now, timing)
        case Phase.SPAWNING:
            return unit, ()


def _woke(unit: Unit, now: Moment) -> Step:
    """Probes start over; a wait for a retry, a drain or a kill continues."""
    if unit.phase in (Phase.LOADING, Phase.READY):
        return replace(unit, asking=False, missed=0, still=None, wake_at=now.monotonic), ()
    if unit.phase is Phase.RELOADING:
        return reloading.woke(unit, now), ()
    if unit.phase is Phase.DRAINING:
        return replace(unit, asking=False, wake_at=now.monotonic), ()
    return unit, ()


def _back_to_work(unit: Unit, launch: Launch, now: Moment) -> Unit:
    unit = replace(
        unit,
        phase=Phase.READY,
        launch=unit.launch.described_by(launch),
        successor=None,
        reloading=None,
        asking=False,
        missed=0,
        still=None,
        wake_at=now.monotonic,
    )
    return with_reason(unit, "Ready", "", now)
