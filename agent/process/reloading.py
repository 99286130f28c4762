"""How single models of one living process are changed while the others answer. Pure, a part of
supervisor.py.

    DRAINING --idle, or deadline--> WRITING --done--> LOADING --loaded, or failed--> ready again
                                       | failed
                                       +--> the process is drained and started anew

llama.cpp's router cuts what a changed model works on when it reads its preset again, and does not
load that model by itself (b11434). The record says that files are being written before they are:
after a crash of ours the next life does it all again, which is harmless.
"""

from __future__ import annotations

from dataclasses import replace

from agent.clock import Moment
from agent.process.events import (
    Answered,
    AskReady,
    AskSlots,
    Effect,
    Note,
    Reload,
    Rewrite,
    Rewritten,
    Save,
    SlotsAnswered,
    Timing,
)
from agent.process.launch import Phase
from agent.process.stopping import begin_stop, cut, waits_for
from agent.process.unit import Reloading, Stage, Step, Unit, said

_UP = ("loaded", "sleeping", "loading")


def reload(unit: Unit, event: Reload, now: Moment, timing: Timing) -> Step:
    """Change these models of a living process, whose argv and environment stay."""
    under_way = unit.reloading
    if under_way is None:
        return begin(unit, event, now, timing)
    event = replace(event, models=event.models | under_way.models)
    if under_way.stage is Stage.WRITING:
        return replace(unit, reloading=replace(under_way, then=event)), ()
    return begin(unit, event, now, timing)


def begin(unit: Unit, wanted: Reload, now: Moment, timing: Timing) -> Step:
    """Let the requests of the models concerned end first, where there can be any."""
    earlier = unit.reloading.up if unit.reloading else ()
    loaded = [m.name for m in unit.served if m.name in wanted.models and m.state in _UP]
    unit = replace(
        unit,
        phase=Phase.RELOADING,
        reloading=Reloading(
            wanted.launch, wanted.models, Stage.DRAINING, tuple(dict.fromkeys((*earlier, *loaded)))
        ),
        quarantined=tuple(q for q in unit.quarantined if q.name not in wanted.models),
        asking=False,
        busy=None,
    )
    unit = said(unit, "Reloading", ", ".join(sorted(wanted.models)), now)
    if not unit.was_ready or not wanted.models:
        return _rewrite(unit)
    drain_s = max(wanted.launch.drain_timeout_s, timing.least_drain_s)
    unit, ask = _ask_slots(replace(unit, drain_until=now.monotonic + drain_s))
    return unit, (Note(f"drains {unit.message} to reload"), ask)


def slots_answered(unit: Unit, event: SlotsAnswered, now: Moment, timing: Timing) -> Step:
    """As in a stop, for the models concerned; others may be busy."""
    under_way = unit.reloading
    if not unit.asking or event.question != unit.question or _stage(unit) is not Stage.DRAINING:
        return unit, ()
    assert under_way is not None
    busy = event.busy if event.busy is not None else unit.busy
    unit = replace(unit, asking=False, busy=busy)
    if event.busy == 0:
        return _rewrite(unit)
    if now.monotonic >= unit.drain_until:
        return _rewrite(unit, Note(cut(unit.busy, unit.launch.drain_timeout_s)))
    names = ", ".join(sorted(under_way.models))
    message = f"{names}: {waits_for(busy)}" if busy is not None else names
    wake_at = min(now.monotonic + timing.slots_s, unit.drain_until)
    return replace(unit, message=message, wake_at=wake_at), ()


def tick(unit: Unit, now: Moment) -> Step:
    """It is time to ask again, or the deadline is there."""
    under_way = unit.reloading
    assert under_way is not None
    match under_way.stage:
        case Stage.DRAINING if now.monotonic >= unit.drain_until:
            return _rewrite(unit, Note(cut(unit.busy, unit.launch.drain_timeout_s)))
        case Stage.DRAINING:
            unit, ask = _ask_slots(unit)
            return unit, (ask,)
        case Stage.LOADING:
            return _ask_ready(unit)
        case Stage.WRITING | Stage.DUE:  # answered by itself; a process that loads
            return unit, ()


def rewritten(unit: Unit, event: Rewritten, now: Moment, timing: Timing) -> Step:
    """The process took its files, or must be started anew to take them."""
    under_way = unit.reloading
    if not unit.asking or event.question != unit.question or _stage(unit) is not Stage.WRITING:
        return unit, ()
    assert under_way is not None
    then = under_way.then
    if not event.done:
        after, effects = begin_stop(unit, then.launch if then else unit.launch, now, timing)
        return after, (Note(f"not reloaded, so it starts anew: {event.message}"), *effects)
    if then is not None:
        return begin(replace(unit, asking=False), then, now, timing)
    unit = replace(unit, asking=False, wake_at=now.monotonic)
    if not unit.was_ready:
        return replace(unit, phase=Phase.LOADING, reloading=None), (Save(),)
    loads = replace(under_way, stage=Stage.LOADING, up=(), loading=event.loading)
    unit = replace(unit, reloading=loads, interval_s=timing.probe_first_s)
    return unit, (Save(), Note(_done(under_way)))


def answered(unit: Unit, event: Answered, now: Moment, timing: Timing) -> Step:
    """Wait for what was told to load; whether it did is then each model's own state."""
    under_way = unit.reloading
    assert under_way is not None
    states = {model.name: model.state for model in event.served}
    loading = [name for name in under_way.loading if states.get(name) == "loading"]
    missed = 0 if event.ready else timing.misses
    unit = replace(unit, missed=missed)
    if loading:
        grown_s = unit.interval_s * timing.probe_loading_growth
        interval_s = min(grown_s, timing.probe_loading_max_s)
        unit = replace(unit, interval_s=interval_s, wake_at=now.monotonic + interval_s)
        return said(unit, "Reloading", f"loads {', '.join(loading)}", now), ()
    pause_s = timing.probe_ready_s if event.ready else timing.probe_missed_s
    unit = replace(unit, phase=Phase.READY, reloading=None, wake_at=now.monotonic + pause_s)
    if unit.ready_at is None:  # adopted
        unit = replace(unit, ready_at=now.monotonic)
    if event.ready:
        return said(unit, "Ready", "", now), ()
    return said(unit, event.reason, event.message, now), (Note(f"{event.reason}: {event.message}"),)


def asks_ready(unit: Unit) -> bool:
    """Whether its open question is about the models that load."""
    return _stage(unit) is Stage.LOADING


def woke(unit: Unit, now: Moment) -> Unit:
    """An answer under way means nothing, but for that of a process which reads its files."""
    if _stage(unit) is Stage.WRITING:
        return unit
    return replace(unit, asking=False, wake_at=now.monotonic)


def _stage(unit: Unit) -> Stage | None:
    return unit.reloading.stage if unit.reloading else None


def _rewrite(unit: Unit, *before: Effect) -> Step:
    under_way = unit.reloading
    assert under_way is not None
    unit = replace(
        unit,
        launch=under_way.launch,
        reloading=replace(under_way, stage=Stage.WRITING),
        question=unit.question + 1,
        asking=True,
        wake_at=None,
    )
    assert unit.child is not None
    write = Rewrite(unit.question, unit.launch, unit.child, unit.left_out, under_way.up)
    return unit, (*before, Save(), write)


def _ask_slots(unit: Unit) -> tuple[Unit, Effect]:
    unit = replace(unit, question=unit.question + 1, asking=True, wake_at=unit.drain_until)
    assert unit.reloading is not None
    return unit, AskSlots(unit.question, unit.launch, unit.reloading.models)


def _ask_ready(unit: Unit) -> Step:
    unit = replace(unit, question=unit.question + 1, asking=True, wake_at=None)
    assert unit.child is not None
    ask = AskReady(unit.question, unit.launch, unit.child, unit.listening, unit.was_ready)
    return unit, (ask,)


def _done(under_way: Reloading) -> str:
    if not under_way.models:
        return "reloaded: what is left out changed"
    return f"reloaded {', '.join(sorted(under_way.models))}; the other models were not touched"
