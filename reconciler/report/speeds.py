"""Measured speeds in words and as JSON, and whose they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.benchmark import BenchmarkResult, Speeds
from reconciler.api.benchmark_settings import settings_digest
from reconciler.core.observation import Instance
from reconciler.report.spans import age


def of_instance(
    results: Iterable[BenchmarkResult],
    instance: Instance,
    versions: Mapping[str, str | None],
    now: float,
) -> tuple[tuple[BenchmarkResult, str | None], ...]:
    """The newest good result for each model of what runs, as measured there, with why it is stale
    by now. One with a problem is here only where there is no other. `versions` are those of the
    runtimes there."""
    newest: dict[str, BenchmarkResult] = {}
    for result in sorted(results, key=lambda r: (r.problem is None, r.measured_at)):
        if result.service == instance.ref.label and result.model in instance.models:
            newest[result.model] = result
    return tuple((r, _stale(r, instance, versions, now)) for _, r in sorted(newest.items()))


def _stale(
    result: BenchmarkResult, instance: Instance, versions: Mapping[str, str | None], now: float
) -> str | None:
    """Against what runs now, as far as that is known."""
    models, settings = instance.inputs.get("models", ()), instance.inputs.get("settings")
    digests = {m.get("name"): m.get("sha256") for m in models if isinstance(m, Mapping)}
    known = {
        "model": digests.get(result.model),
        "runtime": instance.runtime,
        "build": versions.get(instance.runtime),
        "settings": settings_digest(settings, result.model) if settings else None,
    }
    update = {name: value for name, value in known.items() if value is not None}
    return result.stale(now, result.key.model_copy(update=update))


def speed_json(result: BenchmarkResult, stale: str | None) -> dict[str, Any]:
    """The figures without their samples; `stale` says why they are not to be used."""
    return {
        "model": result.model,
        "tokensPerSecond": result.generation and result.generation.tokens_per_second,
        "promptTokensPerSecond": result.prompt and result.prompt.tokens_per_second,
        "variation": result.generation and result.generation.variation,
        "loadSeconds": result.load_seconds,
        "measuredAt": result.measured_at,
        "key": result.key.short,
        "stale": stale,
    }


def speed_text(result: BenchmarkResult, stale: str | None, now: float) -> str:
    """In one line, for below the service."""
    why = f"; not used: {stale}" if stale else ""
    measured = f"{_figure(result.generation)} written, {_figure(result.prompt)} read"
    return f"{result.model} measured {age(now - result.measured_at)}: {measured} tokens/s{why}"


def result_lines(result: BenchmarkResult) -> Iterator[str]:
    """What was measured, then what is to be known of it."""
    name = result.service if result.model in result.service else f"{result.service} {result.model}"
    parts = [
        f"{_speed(result.generation)} written",
        f"{_speed(result.prompt)} read",
        None if result.load_seconds is None else f"ready after {result.load_seconds:.1f} s",
        "timed from outside" if result.timings == "clock" else None,
        str(result.key.device),
    ]
    yield f"{name}: {'; '.join(part for part in parts if part)}"
    if result.busy:
        yield f"  not idle: {'; '.join(result.busy)}"
    if result.problem is not None:
        yield f"  not used: {result.problem}"


def _speed(speeds: Speeds | None) -> str:
    noise = f" ±{speeds.variation:.0%}" if speeds and speeds.variation is not None else ""
    return f"{_figure(speeds)}{noise} tokens/s"


def _figure(speeds: Speeds | None) -> str:
    if speeds is None:
        return "unknown"
    figure = speeds.tokens_per_second
    return f"{figure:.1f}" if figure < 1000 else f"{figure:.0f}"
