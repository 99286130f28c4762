"""The state of each of many models behind one process, and which of them are left out. Pure.

llama.cpp's router starts a model that failed again on every request for it, at once (b11434). So a
model that cannot load is removed from the router's preset, and a request for it gets an error
instead of a process. A model that is loaded and does not respond is reported and left alone: it may
be slow, and ending it would cut its requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from agent.process.events import Answered, ProcessTiming, Unverified
from agent.process.exits import PERMANENT
from agent.process.model_state import Quarantined, mark_quarantined
from agent.process.unit import Unit
from agent.system.clock import Moment
from reconciler.fleet.command import ServedModel

_SERVE = ("loaded", "sleeping")


def learn(unit: Unit, event: Answered, timing: ProcessTiming) -> tuple[Unit, Answered]:
    """Update the unit from a probe result, and the result from what is known of the models."""
    if not event.served:
        return unit, event
    before = dict(unit.silent)
    silent = tuple((name, before.get(name, 0) + 1) for name in sorted(event.silent))
    unit = replace(unit, silent=silent, served=event.served)
    models = shown_models(unit, timing)
    if event.ready and not any(model.state in _SERVE for model in models):
        mute = ", ".join(model.name for model in models if model.reason == "NotResponding")
        event = replace(event, ready=False, reason="NotResponding", message=f"no answer: {mute}")
    elif not event.ready and unit.quarantined and not any(m.state == "loading" for m in models):
        why = ", ".join(f"{model.name} ({model.reason})" for model in models if model.reason)
        event = replace(event, reason="ModelsFailed", message=f"failed to load: {why}")
    return unit, event


def shown_models(unit: Unit, timing: ProcessTiming) -> tuple[ServedModel, ...]:
    """The state of each model, as reported to users."""
    silent = {name: count for name, count in unit.silent if count >= timing.misses}
    return mark_quarantined(
        (_mark_silent(model, silent) for model in unit.served), unit.quarantined
    )


def models_to_leave_out(
    unit: Unit, event: Answered, now: Moment, timing: ProcessTiming
) -> tuple[Quarantined, ...]:
    """The models to leave out from now on; the same as before if nothing changed."""
    unverified = {name for name, _ in event.unverified}
    kept = {q.name: q for q in unit.quarantined if _stays_out(q, unverified, now)}
    for failure in event.failures:
        lasting = failure.reason in PERMANENT
        if failure.name in kept or not (lasting or failure.times >= timing.failed_loads):
            continue
        until = None if lasting else now.wall + timing.backoff_max_s
        kept[failure.name] = Quarantined(failure.name, failure.reason, failure.message, until)
    loaded = {model.name for model in event.served if model.state in ("loaded", "loading")}
    may_be_loaded = tuple((n, why) for n, why in event.unverified if n not in loaded)
    return with_unverified(tuple(kept.values()), may_be_loaded, now, timing)


def with_unverified(
    quarantined: tuple[Quarantined, ...], unverified: Unverified, now: Moment, timing: ProcessTiming
) -> tuple[Quarantined, ...]:
    """Add the models whose bytes may not be loaded."""
    known = {q.name: q for q in quarantined}
    until = now.wall + timing.backoff_max_s
    for name, why in unverified:
        known.setdefault(
            name, Quarantined(name, why.reason, why.message, until, is_unverified=True)
        )
    return tuple(sorted(known.values(), key=lambda model: model.name))


def _stays_out(model: Quarantined, unverified: Set[str], now: Moment) -> bool:
    if model.is_unverified:
        return model.name in unverified
    return model.until is None or now.wall < model.until


def _mark_silent(model: ServedModel, silent: Mapping[str, int]) -> ServedModel:
    if model.name not in silent:
        return model
    message = f"loaded; {silent[model.name]} probes in a row unanswered, left running"
    return ServedModel(model.name, "failed", "NotResponding", message)
