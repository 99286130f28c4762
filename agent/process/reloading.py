"""How single models of one live process are changed while the rest keep serving. Pure, a part of
supervisor.py.

    DRAINING --idle, or deadline--> WRITING --done--> LOADING --loaded, or failed--> ready again
                                       | failed
                                       +--> the process is drained and restarted

llama.cpp's router cuts the requests of a changed model when it reads its preset again, and does
not load that model by itself (b11434). The record notes the reload before the files are written:
after a crash the next run of the agent repeats it all, which is harmless.
"""

from __future__ import annotations

from dataclasses import replace

from agent.process.drain_text import describe_cut, describe_drain
from agent.process.events import (
    Answered,
    AskSlots,
    Effect,
    Note,
    ProcessTiming,
    Reload,
    Rewrite,
    Rewritten,
    Save,
    SlotsAnswered,
)
from agent.process.launch import Phase
from agent.process.model_state import Reloading, ReloadStage
from agent.process.quarantine import with_unverified
from agent.process.stopping import begin_stop
from agent.process.unit import Step, Unit, ask_ready, asked, drain_times, with_reason
from agent.system.clock import Moment

_UP = ("loaded", "sleeping", "loading")


def reload(unit: Unit, event: Reload, now: Moment, timing: ProcessTiming) -> Step:
    """Change these models of a live process, whose argv and environment stay."""
    under_way = unit.reloading
    if under_way is None:
        return begin(unit, event, now, timing)
    event = replace(event, models=event.models | under_way.models)
    if under_way.stage is ReloadStage.WRITING:
        return replace(unit, reloading=replace(under_way, then=event)), ()
    return begin(unit, event, now, timing)


def begin(unit: Unit, wanted: Reload, now: Moment, timing: ProcessTiming) -> Step:
    """Start a reload: wait first for the requests of these models, where there can be any."""
    earlier = unit.reloading.up if unit.reloading else ()
    loaded = [m.name for m in unit.served if m.name in wanted.models and m.state in _UP]
    unit = replace(
        unit,
        phase=Phase.RELOADING,
        reloading=Reloading(
            wanted.launch,
            wanted.models,
            ReloadStage.DRAINING,
            tuple(dict.fromkeys((*earlier, *loaded))),
        ),
        quarantined=tuple(q for q in unit.quarantined if q.name not in wanted.models),
        asking=False,
        busy=None,
    )
    unit = with_reason(unit, "Reloading", ", ".join(sorted(wanted.models)), now)
    if not unit.was_ready or not wanted.models:
        return _rewrite(unit)
    drain_s = max(wanted.launch.drain_timeout_s, timing.least_drain_s)
    unit, ask = _ask_slots(replace(unit, drain_until=now.monotonic + drain_s))
    return unit, (Note(f"drains {unit.message} to reload"), ask)


def slots_answered(unit: Unit, event: SlotsAnswered, now: Moment, timing: ProcessTiming) -> Step:
    """Wait as a stop does, but only for the requests of the models that change."""
    under_way = unit.reloading
    if (
        not unit.asking
        or event.question != unit.question
        or _stage(unit) is not ReloadStage.DRAINING
    ):
        return unit, ()
    assert under_way is not None
    busy = event.busy if event.busy is not None else unit.busy
    unit = replace(unit, asking=False, busy=busy)
    if event.busy == 0:
        return _rewrite(unit)
    if now.monotonic >= unit.drain_until:
        return _rewrite(unit, Note(describe_cut(unit.busy, unit.launch.drain_timeout_s)))
    names = ", ".join(sorted(under_way.models))
    message = (
        f"{names}: {describe_drain(busy, *drain_times(unit, now))}" if busy is not None else names
    )
    wake_at = min(now.monotonic + timing.slots_s, unit.drain_until)
    return replace(unit, message=message, wake_at=wake_at), ()


def tick(unit: Unit, now: Moment) -> Step:
    """Ask again, or rewrite the files if the drain's deadline has passed."""
    under_way = unit.reloading
    assert under_way is not None
    match under_way.stage:
        case ReloadStage.DRAINING if now.monotonic >= unit.drain_until:
            return _rewrite(unit, Note(describe_cut(unit.busy, unit.launch.drain_timeout_s)))
        case ReloadStage.DRAINING:
            unit, ask = _ask_slots(unit)
            return unit, (ask,)
        case ReloadStage.LOADING:
            return ask_ready(unit)
        # a result is due; or the process is still loading
        case ReloadStage.WRITING | ReloadStage.DUE:
            return unit, ()


def rewritten(unit: Unit, event: Rewritten, now: Moment, timing: ProcessTiming) -> Step:
    """The process read its files, or must be restarted to read them."""
    under_way = unit.reloading
    if (
        not unit.asking
        or event.question != unit.question
        or _stage(unit) is not ReloadStage.WRITING
    ):
        return unit, ()
    assert under_way is not None
    quarantined = with_unverified(unit.quarantined, event.unverified, now, timing)
    unit = replace(unit, quarantined=quarantined)
    then = under_way.then
    if not event.done:
        after, effects = begin_stop(unit, then.launch if then else unit.launch, now, timing)
        return after, (Note(f"not reloaded, so it restarts: {event.message}"), *effects)
    if then is not None:
        return begin(replace(unit, asking=False), then, now, timing)
    unit = replace(unit, asking=False, wake_at=now.monotonic)
    if not unit.was_ready:
        return replace(unit, phase=Phase.LOADING, reloading=None), (Save(),)
    loads = replace(under_way, stage=ReloadStage.LOADING, up=(), loading=event.loading)
    unit = replace(unit, reloading=loads, interval_s=timing.probe_first_s)
    return unit, (Save(), Note(_done(under_way)))


def answered(unit: Unit, event: Answered, now: Moment, timing: ProcessTiming) -> Step:
    """Wait for the models that were asked to load; whether they did is each model's own state."""
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
        return with_reason(unit, "Reloading", f"loads {', '.join(loading)}", now), ()
    pause_s = timing.probe_ready_s if event.ready else timing.probe_missed_s
    unit = replace(unit, phase=Phase.READY, reloading=None, wake_at=now.monotonic + pause_s)
    if unit.ready_at is None:  # adopted
        unit = replace(unit, ready_at=now.monotonic)
    if event.ready:
        return with_reason(unit, "Ready", "", now), ()
    return with_reason(unit, event.reason, event.message, now), (
        Note(f"{event.reason}: {event.message}"),
    )


def asks_ready(unit: Unit) -> bool:
    """Whether the open question is about the models that load."""
    return _stage(unit) is ReloadStage.LOADING


def woke(unit: Unit, now: Moment) -> Unit:
    """Results in progress are void, except that of a process which reads its files."""
    if _stage(unit) is ReloadStage.WRITING:
        return unit
    return replace(unit, asking=False, wake_at=now.monotonic)


def _stage(unit: Unit) -> ReloadStage | None:
    return unit.reloading.stage if unit.reloading else None


def _rewrite(unit: Unit, *before: Effect) -> Step:
    under_way = unit.reloading
    assert under_way is not None
    unit = replace(
        unit,
        launch=under_way.launch,
        reloading=replace(under_way, stage=ReloadStage.WRITING),
        message=", ".join(sorted(under_way.models)),  # it waits for no request any more
    )
    unit = asked(unit, None)
    assert unit.child is not None
    loaded = {m.name for m in unit.served if m.state in ("loaded", "loading")}
    untouched = frozenset(loaded - under_way.models)
    write = Rewrite(unit.question, unit.launch, unit.child, unit.left_out, under_way.up, untouched)
    return unit, (*before, Save(), write)


def _ask_slots(unit: Unit) -> tuple[Unit, Effect]:
    unit = asked(unit, unit.drain_until)
    assert unit.reloading is not None
    assert unit.child is not None
    return unit, AskSlots(unit.question, unit.launch, unit.child, unit.reloading.models)


def _done(under_way: Reloading) -> str:
    if not under_way.models:
        return "reloaded: what is left out changed"
    return f"reloaded {', '.join(sorted(under_way.models))}; the other models were not touched"
