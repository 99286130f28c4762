"""What an answer to a probe changes. Pure, a part of supervisor.py."""

from __future__ import annotations

from dataclasses import replace

from agent.clock import Moment
from agent.process import reloading
from agent.process.events import Answered, Note, Reload, Save, Timing
from agent.process.launch import Phase
from agent.process.quarantine import due, learn
from agent.process.unit import Step, Unit, said


def answered(unit: Unit, event: Answered, now: Moment, timing: Timing) -> Step:
    """What a process said of itself, where that is what it was asked last."""
    if not unit.asking or event.question != unit.question:
        return unit, ()
    if unit.phase is Phase.RELOADING and not reloading.asks_ready(unit):
        return unit, ()
    unit, event = learn(replace(unit, asking=False), event, timing)
    if unit.phase in (Phase.LOADING, Phase.READY) and event.listening is not None:
        step = _change_models(unit, event, now, timing)
        if step is not None:
            return step
    if unit.phase is Phase.LOADING:
        return _loading(unit, event, now, timing)
    if unit.phase is Phase.RELOADING:
        return reloading.answered(unit, event, now, timing)
    if unit.phase is not Phase.READY:
        return unit, ()
    if event.ready:
        unit = replace(unit, missed=0, wake_at=now.monotonic + timing.probe_ready_s)
        notes = (Note("answers again"),) if unit.reason != "Ready" else ()
        return said(unit, "Ready", "", now), notes
    return _missed(unit, event, now, timing)


def _missed(unit: Unit, event: Answered, now: Moment, timing: Timing) -> Step:
    """Not ready this time: asked again sooner, and called so after a few times in a row."""
    missed = unit.missed + 1
    lost = missed == timing.misses
    pause_s = timing.probe_ready_s if missed >= timing.misses else timing.probe_missed_s
    unit = replace(unit, missed=missed, wake_at=now.monotonic + pause_s)
    if not lost:
        return unit, ()
    message = f"{missed} probes in a row failed, left running: {event.message}"
    return said(unit, "NotResponding", message, now), (Note(f"NotResponding: {message}"),)


def _change_models(unit: Unit, event: Answered, now: Moment, timing: Timing) -> Step | None:
    """Leave out the models that cannot load, let in those whose time is over, and do again what an
    earlier life of ours did not finish. None: nothing of that."""
    left_out, under_way = due(unit, event, now, timing), unit.reloading
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


def _loading(unit: Unit, event: Answered, now: Moment, timing: Timing) -> Step:
    if not event.ready:
        grown_s = max(unit.interval_s * timing.probe_loading_growth, timing.probe_first_s)
        interval_s = min(grown_s, timing.probe_loading_max_s)
        unit = replace(unit, interval_s=interval_s, wake_at=now.monotonic + interval_s)
        return said(unit, event.reason or "Loading", event.message, now), ()
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
    return said(unit, "Ready", "", now), (Save(), Note(note))
