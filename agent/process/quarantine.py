"""What is known of each of many models behind one process, and which of them are left out. Pure.

llama.cpp's router starts a model that fails again on every request for it, at once (b11434): a
model that cannot load is taken out of what the router knows, so that a request gets an answer
instead of a process. One that is loaded and does not answer is shown and left alone: it may be
slow, and ending it would cut what it works on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.clock import Moment
from agent.process.events import Answered, Timing
from agent.process.exits import PERMANENT
from agent.process.unit import Quarantined, Unit
from reconciler.workload import ServedModel

_SERVE = ("loaded", "sleeping")


def learn(unit: Unit, event: Answered, timing: Timing) -> tuple[Unit, Answered]:
    """The unit with what an answer says of its models, and the answer with what is known more."""
    if not event.served:
        return unit, event
    before = dict(unit.silent)
    silent = tuple((name, before.get(name, 0) + 1) for name in sorted(event.silent))
    unit = replace(unit, silent=silent, served=event.served)
    models = shown(unit, timing)
    if event.ready and not any(model.state in _SERVE for model in models):
        mute = ", ".join(model.name for model in models if model.reason == "NotResponding")
        event = replace(event, ready=False, reason="NotResponding", message=f"no answer: {mute}")
    elif not event.ready and unit.quarantined and not any(m.state == "loading" for m in models):
        why = ", ".join(f"{model.name} ({model.reason})" for model in models if model.reason)
        event = replace(event, reason="ModelsFailed", message=f"failed to load: {why}")
    return unit, event


def shown(unit: Unit, timing: Timing) -> tuple[ServedModel, ...]:
    """Each model as people are to see it."""
    silent = {name: count for name, count in unit.silent if count >= timing.misses}
    return mark_quarantined((_heard(model, silent) for model in unit.served), unit.quarantined)


def mark_quarantined(
    served: Iterable[ServedModel], quarantined: Iterable[Quarantined]
) -> tuple[ServedModel, ...]:
    """The models, with those that are left out as such."""
    out = {
        model.name: ServedModel(model.name, "quarantined", model.reason, model.message)
        for model in quarantined
    }
    return tuple(out.get(model.name, model) for model in served)


def due(unit: Unit, event: Answered, now: Moment, timing: Timing) -> tuple[Quarantined, ...]:
    """The models to be left out from now on; as before where nothing changed."""
    kept = {q.name: q for q in unit.quarantined if q.until is None or now.wall < q.until}
    for failure in event.failures:
        lasting = failure.reason in PERMANENT
        if failure.name in kept or not (lasting or failure.times >= timing.failed_loads):
            continue
        until = None if lasting else now.wall + timing.backoff_max_s
        kept[failure.name] = Quarantined(failure.name, failure.reason, failure.message, until)
    return tuple(sorted(kept.values(), key=lambda model: model.name))


def _heard(model: ServedModel, silent: Mapping[str, int]) -> ServedModel:
    if model.name not in silent:
        return model
    message = f"loaded; {silent[model.name]} probes in a row unanswered, left running"
    return ServedModel(model.name, "failed", "NotResponding", message)
