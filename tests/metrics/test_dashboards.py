"""The dashboards and the alerts: of metrics that there are, and whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.metrics.table import PROGRAMS

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "chart"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
ALERTS = CHART / "alerts" / "fleet.yaml"
CASES = REPOSITORY / "tests" / "cases" / "alerts" / "fleet.yaml"
_NAME = re.compile(r"\b(?:fleet|flexinfer|process)_\w+")

each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def queries(dashboard: Path) -> Iterator[str]:
    """Every query of a dashboard, for all that its variables may be."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel["targets"]:
            yield re.sub(r'"\$\w+"', '".*"', target["expr"])


def names_in(query: str) -> set[str]:
    return set(_NAME.findall(query))


def rules() -> list[dict[str, Any]]:
    return [rule for g in yaml.safe_load(ALERTS.read_text())["groups"] for rule in g["rules"]]


def test_every_query_is_about_metrics_that_a_program_serves() -> None:
    known = {name for rows in PROGRAMS.values() for name in rows}
    asked = [query for path in DASHBOARDS for query in queries(path)]
    asked += [rule["expr"] for rule in rules()]

    named = {name for query in asked for name in names_in(query) if name[:8] != "process_"}

    assert len(DASHBOARDS) == 3
    assert named - known == set()


@each_dashboard
def test_the_panels_of_a_dashboard_lie_beside_each_other(path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    taken = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) == 23
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)


@each_dashboard
def test_a_dashboard_asks_by_its_own_variables_alone(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    made = {variable["name"] for variable in dashboard["templating"]["list"]}

    used = set(re.findall(r"\$\{?(\w+)", path.read_text())) - {"__all"}

    assert used == made


def test_an_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["for"], rule
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule
        assert rule["annotations"]["summary"], rule
        assert len(rule["annotations"]["description"]) > 40, rule


def test_every_alert_has_a_case_in_which_it_fires_and_one_more_when_it_has_ended() -> None:
    tests = yaml.safe_load(CASES.read_text())["tests"]
    fires = {
        sample["labels"]
        for test in tests
        for expected in test["promql_expr_test"]
        for sample in expected["exp_samples"]
    }

    assert fires == {f'{{alertname="{rule["alert"]}"}}' for rule in rules()}
    for test in tests:
        last = test["promql_expr_test"][-1]
        assert (last["expr"], last["exp_samples"]) == ("ALERTS", []), test["name"]
