"""What `/metrics` says, of real processes of a tiny engine; and the arithmetic behind it."""

from __future__ import annotations

import math
import urllib.error
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from agent.node.settings import Intervals
from agent.process.exposition import total
from agent.server.rates import WINDOW_S, Rates
from agent.state.benchmarks import keep
from tests.api.test_benchmark import NOW
from tests.report.test_speeds import measured
from tests.support.counting_engine import METRIC, asked, tell
from tests.support.fleets import model, service
from tests.support.fleets import node as fleet_node
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for

TOKENS = 'flexinfer_tokens_per_second{backend="llama-server",model="tiny",node="mac"}'
LOAD = "flexinfer_model_load_seconds"
BENCHMARK = 'fleet_benchmark_tokens_per_second{model="gemma",node="mac",phase="generation"}'
CHAT = {"chat.yaml": service("chat", "tiny")}


def test_tokens_per_second_are_0_without_traffic_and_grow_with_it(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, CHAT) as node:
        node.wait_ready()
        wait_for(lambda: node.metrics().get(TOKENS) == 0, "a rate without traffic")

        tell(node.engine_port("chat"), "/count/600")

        wait_for(lambda: node.metrics()[TOKENS] > 0, "a rate with traffic")
        wait_for(lambda: _speed(node) > 0, "the rate in the node's state")
        assert node.state_now()["instances"][0]["requestsInFlight"] == 3


def _speed(node: ServedNode) -> float:
    (instance,) = node.state_now()["instances"]
    return float(instance.get("tokensPerSecond") or 0)


def test_what_it_took_to_bring_a_model_is_another_figure_than_to_start_it(tmp_path: Path) -> None:
    load, start = (f'{n}{{model="tiny",node="mac"}}' for n in (LOAD, "fleet_model_start_seconds"))
    with ServedNode.open(tmp_path, CHAT) as node:
        node.wait_ready()
        wait_for(lambda: load in node.metrics())
        before = node.metrics()

    with ServedNode.open(tmp_path, CHAT) as again:  # which finds the model in the store
        again.wait_ready()
        wait_for(lambda: load in again.metrics())

        assert again.metrics()[load] == before[load] > 0
        assert again.metrics()[start] > 0


def test_what_was_measured_is_served_and_what_is_too_noisy_is_not(tmp_path: Path) -> None:
    noisy = measured(model="noisy", problem="too noisy", measured_at=NOW + 9)
    with ServedNode.open(tmp_path, {}) as node:
        for result in (measured(), noisy):
            keep(node.node.agent.state, result)
        wait_for(lambda: BENCHMARK in node.metrics())

        found = {name: value for name, value in node.metrics().items() if "benchmark" in name}

    assert found[BENCHMARK] == 41.0
    assert found['fleet_benchmark_timestamp_seconds{model="gemma",node="mac"}'] == NOW
    assert len(found) == 3, found


def test_an_engine_that_hangs_has_no_rate_and_delays_no_other(tmp_path: Path) -> None:
    other = {
        "two-model.yaml": model("two", source="tiny.gguf"),
        "two.yaml": service("two", "two"),
    }
    with ServedNode.open(tmp_path, CHAT | other) as node:
        node.wait_ready()
        tell(node.engine_port("chat"), "/hang")
        hangs, other_port = node.engine_port("chat"), node.engine_port("two")
        before, seen = len(asked(hangs)), len(asked(other_port))

        wait_for(lambda: len(asked(other_port)) > seen + 20)

        assert len(asked(hangs)) - before < 10, "it was asked in each round"
        assert any('model="two"' in name for name in node.metrics())


def test_an_engine_that_asks_for_a_key_is_read_with_it(tmp_path: Path) -> None:
    keyed = {"node.yaml": fleet_node("mac", agent={"hostIP": "127.0.0.1", "expose": "key"})}
    with ServedNode.open(tmp_path, CHAT | keyed) as node:
        node.wait_ready()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(node.engine_port("chat"))

        wait_for(lambda: node.metrics().get(TOKENS) == 0, "a rate of an engine with a key")


def test_services_of_one_model_are_one_series(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, CHAT | {"too.yaml": service("too", "tiny")}) as node:
        node.wait_ready()
        wait_for(lambda: TOKENS in node.metrics())

        text = node.get("/metrics").text

        series = [line for line in text.splitlines() if line and not line.startswith("#")]
        names = [line.rpartition(" ")[0] for line in series]
        assert len(names) == len(set(names))


def test_a_scrape_loads_no_model_of_a_router(tmp_path: Path) -> None:
    files = {
        "two-model.yaml": model("two", source="tiny.gguf"),
        "hub.yaml": service(
            "hub",
            None,
            runtime="llamacpp-router",
            models=[{"name": "tiny"}, {"name": "two"}],
        ),
    }
    with ServedNode.open(tmp_path, files, intervals=Intervals(0.1, sample_s=0.05)) as node:
        node.wait_ready()
        port = node.engine_port("hub")
        wait_for(lambda: len(asked(port)) > 3)
        before, paths = node.metrics(), asked(port)

        tell(port, "/load/two")  # as somebody's request does

        assert all("autoload=false" in path for path in paths)
        assert {path for path in paths if "model=two" in path} == set()
        assert not any(name.startswith("fleet_model_start") for name in before)
        assert [name for name in before if "tokens" in name and '"two"' in name] == []
        wait_for(lambda: any("tokens" in n and '"two"' in n for n in node.metrics()), "its series")
        assert all("autoload=false" in path for path in asked(port))


def test_the_exposition_is_well_formed_in_both_formats(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, CHAT) as node:
        node.wait_ready()
        open_format = {"Accept": "application/openmetrics-text; version=1.0.0"}

        plain = {family.name for family in text_families(node.get("/metrics").text)}
        answer = node.get("/metrics", headers=open_format)
        modern = {family.name for family in text_string_to_metric_families(answer.text)}

        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert {
            "flexinfer_model_load_seconds",
            "fleet_instances",
            "fleet_loop_last_pass_timestamp_seconds",
            "fleet_source_read_timestamp_seconds",
        } <= plain & modern


@pytest.mark.parametrize("version", ["abc", "", "1.x", "9.9.9"])
def test_a_version_of_the_exposition_that_is_none_is_no_error(tmp_path: Path, version: str) -> None:
    asked = {"Accept": f"application/openmetrics-text; version={version}; escaping=odd"}
    with ServedNode.open(tmp_path, {}) as node:
        wait_for(lambda: node.serving.now.url is not None)

        assert node.get("/metrics", headers=asked).status == 200


def test_metrics_count_what_was_started_and_what_failed(tmp_path: Path) -> None:
    label = '{node="mac",service="default/chat"}'
    with ServedNode.open(tmp_path, CHAT) as node:
        node.wait_ready()
        wait_for(lambda: node.metrics().get(f"fleet_instance_starts_total{label}") == 1)
        [state] = node.node.agent.processes.snapshot()

        node.node.agent.processes.restart(state.ref)

        wait_for(lambda: node.metrics()[f"fleet_instance_starts_total{label}"] == 2)
        assert node.metrics()[f"fleet_instance_failures{label}"] == 0


def test_a_rate_is_the_growth_over_the_last_minute() -> None:
    rates = Rates()
    for second in range(0, 130, 10):
        rates.add("a", second, second * 5.0 if second < 60 else 300 + (second - 60) * 7.0)

    assert rates.per_second("a", 120) == pytest.approx(7.0)


def test_a_counter_that_begins_anew_counts_from_0() -> None:
    rates = Rates()
    for second, count in ((0, 1000.0), (10, 1100.0), (20, 40.0), (30, 60.0)):
        rates.add("a", second, count)

    assert rates.per_second("a", 30) == pytest.approx((100 + 40 + 20) / 30)


def test_what_was_not_read_for_a_minute_has_no_rate() -> None:
    rates = Rates()
    rates.add("a", 0, 1)
    once = rates.per_second("a", 1)
    rates.add("a", 10, 2)

    assert once is None
    assert rates.per_second("a", 10) == pytest.approx(0.1)
    assert rates.per_second("a", 10 + WINDOW_S) is None
    assert rates.per_second("b", 10) is None


STEPS = st.lists(
    st.tuples(st.floats(0.1, 30), st.floats(0, 1e6), st.booleans()), min_size=2, max_size=40
)


@given(STEPS)
def test_a_rate_is_never_negative_and_never_above_the_fastest_step(
    steps: list[tuple[float, float, bool]],
) -> None:
    rates, at, count, fastest = Rates(), 0.0, 0.0, 0.0
    rates.add("a", at, count)
    for passed, grown, restarted in steps:
        at += passed
        count = grown if restarted else count + grown
        fastest = max(fastest, grown / passed)
        rates.add("a", at, count)

    rate = rates.per_second("a", at)

    assert rate is not None
    assert 0 <= rate <= fastest * 1.001 + 1e-9


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{METRIC} 12\n", 12),
        (f'{METRIC}{{model="a b",x="}}"}} 12\n{METRIC}{{model="b"}} 3.5 1700000000\n', 15.5),
        (f"{METRIC}_created 12\n", None),
        (f"# HELP {METRIC} 12\n", None),
        (f"{METRIC} nonsense\n", None),
        (f"{METRIC} NaN\n", None),
        (f"{METRIC} -1\n", None),
        ("", None),
    ],
)
def test_a_counter_is_found_among_other_lines(text: str, value: float | None) -> None:
    found = total(f"other 1\n{text}more 2\n", METRIC)

    assert found == value


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = total(f"{METRIC} {text}", METRIC)

    assert found is None or math.isfinite(found)
