"""Measured speeds beside what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.api.benchmark import BenchmarkKey, BenchmarkResult, Speeds
from reconciler.api.benchmark_settings import settings_digest
from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance, RuntimeFound
from reconciler.report.nodestate import node_state
from reconciler.report.speeds import result_lines
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from reconciler.report.status_text import StatusStyle, status_text
from tests.api.test_benchmark import L4, NOW
from tests.support.builders import NODE, instance, model_file, observed, workload

RUNS = instance(
    "chat", of=workload("chat", models=(model_file(sha256="a" * 64),)), models=("gemma",), pid=41
)
KEY = BenchmarkKey(
    model="a" * 64,
    runtime="llama-server",
    build="b11434",
    settings=settings_digest({"contextSize": 8192}, "gemma"),
    device=L4,
)


def measured(**changes: Any) -> BenchmarkResult:
    values: dict[str, Any] = {
        "key": KEY,
        "service": "default/chat",
        "model": "gemma",
        "node": "mac",
        "prompt": Speeds.of([1400.0]),
        "generation": Speeds.of([41.0, 40.0, 45.0]),
        "load_seconds": 1.25,
        "measured_at": NOW,
        "iterations": 3,
    }
    return BenchmarkResult(**{**values, **changes})


def status(
    *results: BenchmarkResult,
    version: str | None = "b11434",
    later_s: float = 0,
    speeds: Mapping[ObjectRef, float] = MappingProxyType({}),
    runs: Instance = RUNS,
) -> Status:
    """What an agent says that measured these, as it is read back."""
    runtimes = (RuntimeFound("llama-server", "/bin/llama-server", version),)
    seen = observed(runs, runtimes=runtimes, seen_at=NOW + later_s)
    said = node_state(
        seen.targets[NODE], [runs], agent_version="1", benchmarks=results, speeds=speeds
    )
    heard = NodeState.model_validate_json(said.model_dump_json(by_alias=True, exclude_none=True))
    return Status(seen, states={NODE: heard})


def shown(status: Status) -> Any:
    (service,) = status_json(status)["services"]
    return service["placements"][0]["benchmarks"]


def test_a_status_has_the_measured_speed_of_what_runs() -> None:
    at = status(measured())

    assert shown(at) == [
        {
            "model": "gemma",
            "tokensPerSecond": 41.0,
            "promptTokensPerSecond": 1400.0,
            "variation": pytest.approx(0.063, abs=0.001),
            "loadSeconds": 1.25,
            "measuredAt": NOW,
            "key": KEY.short,
            "stale": None,
        }
    ]
    assert "gemma measured 5 min ago: 41.0 written, 1400 read tokens/s\n" in status_text(
        at, StatusStyle(NOW + 300)
    )


@pytest.mark.parametrize(
    ("speeds", "figure", "line"),
    [
        ({RUNS.ref: 1234.5}, 1234.5, "writes 1,234.5 tokens/s, the mean of the last minute\n"),
        ({RUNS.ref: 0.0}, 0.0, None),
        ({}, None, None),
        ({RUNS.ref._replace(name="other"): 7.0}, None, None),
    ],
    ids=["busy", "idle", "not known", "of another service"],
)
def test_a_status_has_what_a_service_writes_now(
    speeds: dict[ObjectRef, float], figure: float | None, line: str | None
) -> None:
    at = status(speeds=speeds)

    (service,) = status_json(at)["services"]
    assert service["placements"][0]["tokensPerSecond"] == figure
    text = status_text(at, StatusStyle(NOW))
    assert ("tokens/s" in text) == (line is not None)
    assert line is None or line in text


def test_a_service_without_a_process_writes_nothing_whatever_the_last_minute_was() -> None:
    ended = replace(RUNS, pid=None, ready=False, reason="CrashLoop")
    speeds, requests = {RUNS.ref: 7.4}, {RUNS.ref: 2}
    seen = observed(ended, seen_at=NOW)
    older = node_state(
        seen.targets[NODE], [RUNS], agent_version="1", speeds=speeds, requests=requests
    )
    newer = node_state(
        seen.targets[NODE], [ended], agent_version="1", speeds=speeds, requests=requests
    )

    assert newer.instances[0].tokens_per_second is newer.instances[0].requests_in_flight is None
    for heard in (older, newer):
        (service,) = status_json(at := Status(seen, states={NODE: heard}))["services"]
        (place,) = service["placements"]
        assert place["tokensPerSecond"] is place["requestsInFlight"] is None
        assert "tokens/s" not in status_text(at, StatusStyle(NOW))


def test_a_status_has_what_pods_write_by_their_clusters_word() -> None:
    in_pods = replace(RUNS, target="cluster/prod")
    seen = observed(in_pods, target="cluster/prod", seen_at=NOW)
    at = Status(seen, speeds={"cluster/prod": {RUNS.ref: 12.5}})

    (service,) = status_json(at)["services"]
    assert service["placements"][0]["tokensPerSecond"] == 12.5
    assert "writes 12.5 tokens/s, the mean of the last minute\n" in status_text(
        at, StatusStyle(NOW)
    )


def test_without_a_measurement_nothing_is_shown() -> None:
    assert shown(status()) == []
    assert shown(status(measured(service="default/other"))) == []
    assert "measured" not in status_text(status(), StatusStyle(NOW))


@pytest.mark.parametrize(
    ("change", "version", "later_s", "why"),
    [
        ({}, "b11500", 0.0, "measured with another runtime build"),
        ({"model": "c" * 64}, "b11434", 0.0, "measured with another model digest"),
        ({"settings": "c" * 64}, "b11434", 0.0, "measured with another settings"),
        ({}, "b11434", 91 * 86_400.0, "measured 91 days ago, and counts for 90"),
        ({}, None, 0.0, None),
    ],
)
def test_a_figure_of_another_build_digest_or_time_says_so(
    change: dict[str, str], version: str | None, later_s: float, why: str | None
) -> None:
    at = status(measured(key=KEY.model_copy(update=change)), version=version, later_s=later_s)

    assert shown(at)[0]["stale"] == why
    assert (f"; not used: {why}" in status_text(at, StatusStyle(NOW))) == (why is not None)


def test_a_measurement_that_went_wrong_is_shown_where_there_is_no_other() -> None:
    noisy = measured(problem="too noisy: x", measured_at=NOW + 9)

    assert shown(status(noisy))[0]["stale"] == "too noisy: x"
    assert shown(status(measured(), noisy))[0]["stale"] is None


def test_a_result_of_a_newer_agent_that_cannot_be_read_hides_nothing_else() -> None:
    said = node_state(
        replace(observed(RUNS).targets[NODE], seen_at=NOW), [RUNS], agent_version="9"
    ).model_dump(mode="json", by_alias=True)
    good = measured().model_dump(mode="json", by_alias=True)

    heard = NodeState.model_validate({**said, "benchmarks": [{"key": "of another kind"}, good, 7]})

    assert heard.benchmarks == (measured(),)
    assert NodeState.model_validate({**said, "benchmarks": "x"}).benchmarks == ()


def test_a_result_in_words_says_what_it_is_worth() -> None:
    noisy = measured(
        problem="too noisy", busy=("1.5 of 2 cores at work before",), timings="clock", prompt=None
    )

    assert list(result_lines(noisy)) == [
        "default/chat gemma: 41.0 ±6% tokens/s written; unknown tokens/s read; ready after 1.2 s;"
        " timed from outside; 1 x NVIDIA sm_89, 22 GiB",
        "  not idle: 1.5 of 2 cores at work before",
        "  not used: too noisy",
    ]
