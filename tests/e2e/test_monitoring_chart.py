"""The chart's dashboards, alerts and monitors: the files as they are, and who is scraped."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.e2e.test_chart import CHART, NAMESPACE, helm
from tests.metrics.test_dashboards import ALERTS, DASHBOARDS
from tests.support.manifests import of_kind, one_service

pytestmark = pytest.mark.e2e

EVERYTHING = (
    *("--set", "git.url=https://git.test/fleet.git"),
    *("--set", "labels.enabled=true"),
    *("--set", "scheduler.enabled=true"),
)
MONITORS = ("--set", "monitoring.monitors=true")


def rendered(*words: str) -> list[dict[str, Any]]:
    text = helm("template", "fleet", str(CHART), "-n", NAMESPACE, *words)
    return [document for document in yaml.safe_load_all(text) if document]


def of_monitoring(*words: str) -> list[dict[str, Any]]:
    ours = ("PrometheusRule", "PodMonitor", "ConfigMap")
    return [document for document in rendered(*words) if document["kind"] in ours]


def test_nothing_of_it_is_there_unless_it_is_asked_for() -> None:
    assert of_monitoring(*EVERYTHING) == []


def test_dashboards_are_files_that_grafanas_sidecar_finds() -> None:
    made = of_monitoring("--set", "monitoring.dashboards=true")

    texts = [text.rstrip("\n") for d in made for text in d["data"].values()]
    assert texts == [path.read_text().rstrip("\n") for path in DASHBOARDS]
    assert {d["metadata"]["labels"]["grafana_dashboard"] for d in made} == {"1"}


def test_the_rules_are_those_of_the_file() -> None:
    words = ("--set", "monitoring.rules=true", "--set", "monitoring.labels.release=kps")

    (made,) = of_monitoring(*words)

    assert made["spec"] == yaml.safe_load(ALERTS.read_text())
    assert made["metadata"]["labels"]["release"] == "kps"


def test_a_monitor_finds_the_pods_of_each_program_and_their_port() -> None:
    documents = rendered(*EVERYTHING, *MONITORS)
    pods = [d["spec"]["template"] for d in documents if d["kind"] in ("Deployment", "DaemonSet")]
    pods += [d["spec"]["template"] for d in of_kind(one_service(), "Deployment")]

    found = {m["metadata"]["name"]: m["spec"] for m in documents if m["kind"] == "PodMonitor"}

    names = {"fleet-reconciler", "fleet-labels", "fleet-extender", "fleet-companions"}
    assert found.keys() == names
    for spec in found.values():
        (pod,) = (p for p in pods if _selects(spec["selector"], p))
        containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        ports = [port["name"] for c in containers for port in c.get("ports", ())]
        (endpoint,) = spec["podMetricsEndpoints"]
        assert ports.count(endpoint["port"]) == 1


def test_programs_that_are_off_have_no_monitor() -> None:
    made = of_monitoring(*MONITORS)

    assert [m["metadata"]["name"] for m in made] == ["fleet-companions"]


def test_an_extender_with_a_certificate_is_asked_by_tls() -> None:
    words = ("--set", "scheduler.tls.secretName=extender")
    made = {m["metadata"]["name"]: m for m in of_monitoring(*EVERYTHING, *MONITORS, *words)}

    (endpoint,) = made["fleet-extender"]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"


def _selects(selector: dict[str, Any], pod: dict[str, Any]) -> bool:
    return bool(selector["matchLabels"].items() <= pod["metadata"]["labels"].items())
