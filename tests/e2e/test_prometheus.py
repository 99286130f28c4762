"""A real Prometheus takes what every program serves, and answers every query of every dashboard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest

from agent.labels import web as labels_web
from agent.labels.labeler import Labeler
from agent.machine.machine import Machine
from agent.machine.sensors import Sensors
from agent.pod.companion import Companion
from agent.pod.engine import Engine
from agent.pod.web import PodServer
from agent.server import ListenSettings
from agent.server.sampler import Sampler
from agent.state.benchmarks import keep
from reconciler.http.thread import ServerThread
from reconciler.kube.client.api import ApiServer
from reconciler.kube.extender.app import make_app as make_extender
from reconciler.kube.extender.tally import Sources, Tally
from reconciler.loop import Pass
from reconciler.metrics.exposition import exposition, family, info
from reconciler.metrics.table import EVERYWHERE, PROGRAMS, MetricType
from tests.kube.test_serving import CHAT, serving
from tests.metrics.test_dashboards import ALERTS, CASES, DASHBOARDS, names_in, queries
from tests.report.test_speeds import measured
from tests.support.builders import instance, observed
from tests.support.cluster_views import nothing_to_do
from tests.support.fleets import service
from tests.support.machines import case
from tests.support.prometheus import RunningPrometheus, promtool, running_prometheus
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.prometheus, pytest.mark.together]


@pytest.mark.parametrize("program", PROGRAMS)
def test_promtool_finds_no_fault_with_the_metrics(program: str) -> None:
    rows = PROGRAMS[program].values()
    made = [
        info(row, *row.labels) if row.type is MetricType.INFO else family(row, [(row.labels, 1.0)])
        for row in rows
    ]
    text = exposition(lambda: made, "")[0].decode()

    assert all(f"\n{row.name}" in text for row in rows)
    promtool("check", "metrics", stdin=text)


def test_promtool_takes_the_alerts_and_each_fires_when_it_should() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(CASES))


@contextmanager
def _agent(folder: Path) -> Iterator[int]:
    with ServedNode.open(folder, {"chat.yaml": service("chat", "tiny")}) as node:
        keep(node.node.agent.state, measured())
        node.wait_ready()
        yield node.port


@contextmanager
def _reconciler(_: Path) -> Iterator[int]:
    with serving() as served:
        served.board.on_planned(Pass(CHAT, observed(), nothing_to_do(CHAT)))
        served.board.on_observed(observed(instance()))
        served.board.on_ended(0.25)
        yield served.port


@contextmanager
def _extender(_: Path) -> Iterator[int]:
    sources = Sources(lambda: None, dict, tuple)
    with ServerThread(make_extender(sources, Tally()), "127.0.0.1", 0) as server:
        yield server.port


@contextmanager
def _labeler(folder: Path) -> Iterator[int]:
    case("mi210", folder)
    sensors = Sensors(Machine(folder))
    labeler = Labeler(cast("ApiServer", None), "worker-1", "", lambda: None)  # type: ignore[arg-type,return-value]  # it does not run
    app = labels_web.make_app("worker-1", labeler, sensors, 30.0)
    sensors.start()
    with ServerThread(app, "127.0.0.1", 0) as server:
        yield server.port
    sensors.close()


@contextmanager
def _companion(_: Path) -> Iterator[int]:
    companion = Companion(Engine.beside("llama-server", 1, ("tiny",), None), lambda _: None)
    with PodServer(("127.0.0.1", 0), companion, Sampler(companion.counters), "worker-1") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


SERVED = {
    "agent": _agent,
    "reconciler": _reconciler,
    "extender": _extender,
    "labeler": _labeler,
    "companion": _companion,
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPrometheus]:
    """One that has scraped every program several times, beside a service that answers."""
    with ExitStack() as stack:
        ports = {
            name: stack.enter_context(serve(tmp_path_factory.mktemp(name)))
            for name, serve in SERVED.items()
        }
        folder = tmp_path_factory.mktemp("prometheus")
        found = stack.enter_context(running_prometheus(folder, ports, ALERTS))
        # twice, so that rates have a value
        wait_for(lambda: len(found.query("count_over_time(fleet_instance_ready[1m]) > 2")) == 1)
        for name in ("flexinfer_tokens_per_second", "flexinfer_gpu_temperature_celsius"):
            wait_for(lambda name=name: found.query(name) != [], name)  # type: ignore[misc]
        yield found


@pytest.mark.parametrize("program", SERVED)
def test_every_program_is_scraped_and_names_what_all_of_them_do(
    prometheus: RunningPrometheus, program: str
) -> None:
    asked = f'{{job="{program}",__name__=~"fl.+"}}'
    wait_for(lambda: prometheus.query(asked) != [], f"{program} is scraped")

    scraped = {series["metric"]["__name__"] for series in prometheus.query(asked)}

    assert scraped <= PROGRAMS[program].keys()
    assert {row.name for row in EVERYWHERE} <= prometheus.families_of(program)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_is_answered(
    prometheus: RunningPrometheus, dashboard: Path
) -> None:
    """With series wherever the programs of this test have what it asks for. A busy machine
    misses a scrape, after which nothing is current until the next one."""
    lately = prometheus.query('last_over_time({__name__=~"fl.+|process_.+"}[5m])')
    there = {s["metric"]["__name__"] for s in lately}
    answered = 0
    for query in queries(dashboard):
        if names_in(query) <= there:
            wait_for(lambda query=query: bool(prometheus.query(query)), query)  # type: ignore[misc]
            answered += 1
        else:
            prometheus.query(query)  # it parses

    assert answered >= 0.8 * len([*queries(dashboard)])


def test_every_alert_is_evaluated_without_an_error(prometheus: RunningPrometheus) -> None:
    wait_for(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()))

    assert [r for r in prometheus.rules() if r["health"] != "ok"] == []


def test_an_agent_off_loopback_is_scraped_by_its_token_and_its_certificate(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {}, ListenSettings("0.0.0.0", 0)) as node:
        tls = node.state / "tls"
        port = node.port  # it serves, so the files are there
        secure = {
            "scheme": "https",
            "authorization": {"credentials_file": str(tls / "token")},
            "tls_config": {"ca_file": str(tls / "cert.pem")},
        }
        with running_prometheus(tmp_path, {"agent": port}, **secure) as found:
            wait_for(lambda: found.query("fleet_loop_passes_total") != [], "it is scraped")
