"""How fast pods write, from the counter of a real engine to the status of their service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.render.probes import COMPANION_PORT
from tests.support.bench_jobs import engine_at
from tests.support.beside_cluster import own_address
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import service
from tests.support.pods import completion, running
from tests.support.ports import fixed_port, own_port
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

OK = 0


@pytest.fixture
def host() -> str:
    return own_address()


@pytest.fixture
def companion(host: str, tmp_path: Path) -> Iterator[None]:
    """Beside an engine that is asked all the time."""
    port, listen = own_port(), f"{host}:{COMPANION_PORT}"
    words = ("--runtime", "llama-server", "--port", str(port), "--listen", listen)
    own = ("--name", "tiny", "--sample-interval", "0.05")
    with (
        fixed_port(COMPANION_PORT),
        engine_at(port, tmp_path / "engine"),
        _traffic(port),
        running(tmp_path / "companion.log", "companion", *words, *own),
    ):
        wait_for(lambda: bool(_speed(host)), "its tokens are counted")
        yield


@contextmanager
def _traffic(port: int) -> Iterator[None]:
    """A client of the engine, until the end of the block."""
    ends = threading.Event()

    def ask() -> None:
        while not ends.wait(1.0):
            completion(port, "tiny", tokens=64)

    client = threading.Thread(target=ask)
    client.start()
    try:
        yield
    finally:
        ends.set()
        client.join()


def _speed(host: str) -> float | None:
    """What the companion says now."""
    from reconciler.agents.scrape import figures, scrape

    said = scrape(f"http://{host}:{COMPANION_PORT}/metrics", within_s=5.0, most_bytes=1 << 20)
    found = figures(said or "", "flexinfer_tokens_per_second")
    return sum(found) if found else None


def _instances(home: ClusterFleet) -> list[dict[str, Any]]:
    status = home.cluster.json("get", "isvc", "chat").get("status") or {}
    found: list[dict[str, Any]] = status.get("instances") or []
    return found


def _is_shown(home: ClusterFleet) -> bool:
    """Whether people see what is told. False: it became another figure meanwhile, or none."""
    if not (found := _instances(home)):
        return False
    (told,) = found
    figure = told["tokensPerSecond"]
    shown = home.run("status", "-o", "json").json()["services"][0]["placements"][0]
    text = home.run("status").out
    columns = home.cluster.kubectl("get", "isvc", "chat", "-o", "wide")
    if _instances(home) != [told]:
        return False
    assert shown["tokensPerSecond"] == figure
    assert f"writes {figure:,.1f} tokens/s, the mean of the last minute" in text
    assert str(figure) in columns
    return True


@pytest.mark.usefixtures("companion")
def test_what_a_pod_writes_is_in_the_status_of_its_service_until_it_is_suspended(
    tmp_path: Path, installed_cluster: Cluster, machine: Machine, host: str
) -> None:
    home = ClusterFleet.create(tmp_path, installed_cluster, machine)
    home.push(chat=service("chat", "phi"))
    home.once()
    home.move_pod("chat", host)
    assert _instances(home) == [], "what ends at once asks no companion"

    loop = home.loop()
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        found[:] = _instances(home)
        return bool(found)

    wait_for(is_told, "the speed of its pod")

    (told,) = found
    assert (told.keys(), told["node"]) == ({"node", "tokensPerSecond"}, "edge")
    assert told["tokensPerSecond"] > 0
    wait_for(lambda: _is_shown(home), "every view has the same figure")
    assert home.dry_run().code == OK, "it is no change of anything that is declared"

    home.push(chat=service("chat", "phi", suspend=True))
    wait_for(lambda: _instances(home) == [], "it goes with the pods")
    assert loop.process.poll() is None
