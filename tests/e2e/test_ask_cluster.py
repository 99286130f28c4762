"""`reconcile ask` of a service in a cluster: through the API server, to a real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench_jobs import engine_at
from tests.support.beside_cluster import own_address
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import service
from tests.support.ports import own_port
from tests.support.reconciler import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]


def test_a_service_in_a_cluster_is_asked_through_its_api_server(
    tmp_path: Path, installed_cluster: Cluster, machine: Machine
) -> None:
    home, host, port = (
        ClusterFleet.create(tmp_path, installed_cluster, machine),
        own_address(),
        own_port(),
    )
    home.push(chat=service("chat", "phi", endpoint={"port": port}))
    early = home.run("ask", "chat", "Hello")
    home.once()
    home.move_pod("chat", host)

    silent = home.run("ask", "chat", "Hello")
    with engine_at(port, tmp_path / "engine", host="0.0.0.0"):
        answered = home.run("ask", "chat", "Hello", "--max-tokens=3")
        as_json = home.run("ask", "phi", "Hello", "--max-tokens=3", "-o", "json")
    home.cluster.kubectl("delete", "service", "chat")
    gone = home.run("ask", "chat", "Hello")

    assert early.code == 3
    assert (silent.code, "503" in silent.err) == (1, True), silent.err
    assert answered.code == 0, answered.err
    assert as_json.json()["service"] == "default/chat"
    assert gone.code == 1
    assert 'services "chat" not found' in gone.err
