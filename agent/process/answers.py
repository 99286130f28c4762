"""How a probe result changes a unit. Pure, a part of supervisor.py."""

from __future__ import annotations

from dataclasses import replace

from agent.process import reloading
from agent.process.events import Answered, Note, ProcessTiming, Reload, Save
from agent.process.hang import still, what_follows
from agent.process.launch import Phase
from agent.process.quarantine import learn, models_to_leave_out
from agent.process.stopping import begin_stop, end_hung
from agent.process.unit import Step, Unit, with_reason
from agent.system.clock import Moment


def answered(unit: Unit, event: Answered, now: Moment, timing: ProcessTiming) -> Step:
    """Apply a probe result, unless it answers an older question than the last one."""
    if not unit.asking or event.question != unit.question:
        return unit, ()
    if unit.phase is Phase.RELOADING and not reloading.asks_ready(unit):
        return unit, ()
    stillness = None if event.ready else still(unit.still, event.computed_s, now, timing)
    unit, event = learn(replace(unit, asking=False, still=stillness), event, timing)
    if unit.phase in (Phase.LOADING, Phase.READY) and event.listening is not None:
        step = _change_models(unit, event, now, timing)
        if step is not None:
            return step
    if unit.phase is Phase.LOADING and event.reason == "NotResponding":  # adopted
        return _missed(unit, event, now, timing)
    if unit.phase is Phase.LOADING:
        return _loading(unit, event, now, timing)
    if unit.phase is Phase.RELOADING:
        return reloading.answered(unit, event, now, timing)
    if unit.phase is not Phase.READY:
        return unit, ()
    if (why := event.may_not_wake) is not None:
        after, effects = begin_stop(unit, unit.intended, now, timing)
        return after, (Note(f"ended in its sleep: {why.reason}: {why.message}"), *effects)
    if event.ready:
        unit = replace(unit, missed=0, wake_at=now.monotonic + timing.probe_ready_s)
        news = (Save(), Note("answers again")) if unit.reason != "Ready" else ()
        return with_reason(unit, "Ready", "", now), news
    return _missed(unit, event, now, timing)


def _missed(unit: Unit, event: Answered, now: Moment, timing: ProcessTiming) -> Step:
    """Count a failed probe: ask again soon, and call the process NotResponding after a few in a
    row. One that hangs is ended after a while."""
    if unit.still is not None and unit.still.is_over(timing):
        return end_hung(unit, now, timing)
    missed = unit.missed + 1
    lost = missed == timing.misses
    pause_s = timing.probe_ready_s if missed >= timing.misses else timing.probe_missed_s
    unit = replace(unit, missed=missed, wake_at=now.monotonic + pause_s)
    if missed < timing.misses:
        return unit, ()
    message = f"{event.message}, {timing.misses} times in a row; {what_follows(unit.still, timing)}"
    unit = with_reason(replace(unit, ready_since=None), "NotResponding", message, now)
    return unit, (Save(), Note(f"NotResponding: {message}")) if lost else ()


def _change_models(unit: Unit, event: Answered, now: Moment, timing: ProcessTiming) -> Step | None:
    """Reload if models must be left out or let in again, or if an earlier run of the agent did not
    finish a reload; else None."""
    left_out, under_way = models_to_leave_out(unit, event, now, timing), unit.reloading
    if left_out == unit.quarantined and under_way is None:
        return None
    notes = [
        Note(f"{model.name} is left out: {model.reason}: {model.message}")
        for model in left_out
        if model.name not in unit.left_out
    ]
    unit = replace(unit, quarantined=left_out, listening=event.listening)
    if under_way is not None:
        unit = replace(unit, missed=0 if event.ready else timing.misses)
    models = under_way.models if under_way else frozenset()
    after, effects = reloading.begin(unit, Reload(unit.launch, models), now, timing)
    return after, (*notes, *effects)


def _loading(unit: Unit, event: Answered, now: Moment, timing: ProcessTiming) -> Step:
    if not event.ready:
        grown_s = max(unit.interval_s * timing.probe_loading_growth, timing.probe_first_s)
        interval_s = min(grown_s, timing.probe_loading_max_s)
        unit = replace(unit, interval_s=interval_s, wake_at=now.monotonic + interval_s)
        return with_reason(unit, event.reason or "Loading", event.message, now), ()
    took = None if unit.spawned_at is None else now.monotonic - unit.spawned_at
    unit = replace(
        unit,
        phase=Phase.READY,
        ready_at=now.monotonic,
        was_ready=True,
        listening=event.listening,
        missed=0,
        start_seconds=unit.start_seconds if took is None else round(took, 3),
        wake_at=now.monotonic + timing.probe_ready_s,
    )
    note = "ready" if took is None else f"ready after {took:.2f} s"
    since = unit.ready_since if unit.reason == "Adopted" else None
    unit = with_reason(replace(unit, ready_since=None), "Ready", "", now)
    return replace(unit, since=unit.since if since is None else since), (Save(), Note(note))
