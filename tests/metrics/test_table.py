"""The table of metrics, the page that shows it, and what is written for a scrape."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from reconciler.metrics import table
from reconciler.metrics.exposition import exposition, family, info
from reconciler.metrics.table import EVERYWHERE, PROGRAMS, MetricRow, MetricType

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
OPEN = "application/openmetrics-text; version=1.0.0"
ODD = 'a "quoted" \\ name\nof two lines'

each_program = pytest.mark.parametrize("program", PROGRAMS)


def documented(row: MetricRow) -> str:
    """The line of a metric on the page."""
    return f"| `{row.name}` | {row.type} | {', '.join(row.labels)} | {row.help} |"


@each_program
def test_the_page_shows_the_table(program: str) -> None:
    text = PAGE.read_text()
    expected = [documented(row) for row in PROGRAMS[program].values()]

    (section,) = re.findall(rf"^### .*`{program}`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)

    assert re.findall(r"^\| `.*", section, re.MULTILINE) == expected, "\n".join(expected)


@each_program
def test_a_name_says_the_type(program: str) -> None:
    suffixes = {MetricType.COUNTER: "_total", MetricType.INFO: "_info"}
    for row in PROGRAMS[program].values():
        assert row.name.endswith(suffixes.get(row.type, "")), row
        if row.type is MetricType.GAUGE:
            assert not row.name.endswith(tuple(suffixes.values())), row


def series(of: Iterable[Metric], accept: str) -> dict[tuple[str, str], float]:
    """Name and node of every series that is read back."""
    body, content_type = exposition(lambda: of, accept)
    parse = open_families if "openmetrics" in content_type else text_string_to_metric_families
    return {
        (sample.name, sample.labels["node"]): sample.value
        for found in parse(body.decode())
        for sample in found.samples
        if "node" in sample.labels
    }


@pytest.mark.parametrize("accept", ["", OPEN])
def test_any_text_is_a_label(accept: str) -> None:
    load = family(
        table.AGENT["flexinfer_model_load_seconds"], [(("m", ODD), 1.5), (("m", "b"), None)]
    )
    passes = family(table.AGENT["fleet_loop_passes_total"], [((ODD,), 3)])
    build = info(table.AGENT["fleet_build_info"], ODD, "1", None)

    assert series((load, passes, build), accept) == {
        ("flexinfer_model_load_seconds", ODD): 1.5,
        ("fleet_loop_passes_total", ODD): 3,
        ("fleet_build_info", ODD): 1,
    }


def test_a_series_with_too_few_labels_is_a_bug() -> None:
    with pytest.raises(ValueError, match="fleet_memory_pressure has 2 labels, not 1"):
        family(table.AGENT["fleet_memory_pressure"], [(("normal",), 1.0)])


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=abc", "\x00;;,=", "*"])
def test_an_odd_wish_for_a_format_is_answered(accept: str) -> None:
    body, content_type = exposition(tuple, accept)

    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"# TYPE flexinfer_tokens_per_second gauge" in body


@pytest.mark.parametrize("accept", ["", OPEN])
def test_what_every_program_names_is_there_once_and_without_a_figure_that_nobody_measured(
    accept: str,
) -> None:
    load = family(table.AGENT["flexinfer_model_load_seconds"], [(("m", "n"), 1.5)])

    body = exposition(lambda: [load], accept)[0].decode()

    for row in EVERYWHERE:
        assert body.count(f"# HELP {row.name} ") == body.count(f"# TYPE {row.name} ") == 1
    assert series([load], accept) == {("flexinfer_model_load_seconds", "n"): 1.5}
