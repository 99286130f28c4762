"""Settings of every test."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import forked
from tests.support.cluster import Cluster, running_cluster

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from tests.support.kube_world import World

# A machine with other work to do may take any time for one example; and where a result decides
# about a change (CI=true), the same examples are tried each time. Locally every run tries new ones.
# GitHub's machines too: Hypothesis would take them for CI by itself, where `make soak` runs.
_ANY_TIME = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("here", **_ANY_TIME, derandomize=False)
settings.register_profile("ci", **_ANY_TIME, derandomize=True)
# No hub is asked for what a fleet of a test names; tests that have one of their own say so.
os.environ.setdefault("FLEET_OFFLINE", "1")
# Engines are found on PATH: this environment's come first, whichever is activated.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the run of all tests should know: who asks for the real llama-server waits for it
    where it must be built, and who needs an installed cluster shares one."""
    for item in items:
        if "installed_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("installed")
        if item.get_closest_marker("e2e") and _asks_for_llama_server(item):
            item.add_marker("llama_server")


def _asks_for_llama_server(item: pytest.Item) -> bool:
    """By what its module imports."""
    homes = tuple(f"tests.support.{name}" for name in ("llama_server", "routers", "bench_jobs"))
    module = getattr(item, "module", None)
    return any(getattr(each, "__module__", "") in homes for each in vars(module or object).values())


def pytest_unconfigure() -> None:
    forked.end_servers()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests that leave it running."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def bare_cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with nothing in it; what a test makes goes with it."""
    if shared_cluster.keeps:
        shared_cluster.wipe(wholly=True)
    yield shared_cluster
    shared_cluster.wipe()


@pytest.fixture
def installed_cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster where `reconcile install` was run, and nothing else is. The next test finds it as
    this one did: definitions that come and go cost an API server a second."""
    from tests.support.installed import install

    if not shared_cluster.keeps:
        shared_cluster.wipe()
        install(shared_cluster)
        shared_cluster.keep()
    yield shared_cluster
    shared_cluster.wipe()


@pytest.fixture
def cluster(bare_cluster: Cluster) -> Cluster:
    """Modules whose tests all need what `reconcile install` makes say so by overriding it."""
    return bare_cluster


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster whose parts a test may stop, kill and start again."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def api(cluster: Cluster) -> Iterator[ApiServer]:
    """A client of the cluster with all rights."""
    opened = cluster.client("test")
    yield opened
    opened.close()


@pytest.fixture
def world(cluster: Cluster, api: ApiServer) -> World:
    """A fleet that has nothing yet in a namespace of its own."""
    from tests.support.kube_world import World

    return World(api, cluster.namespace(f"apps-{secrets.token_hex(4)}"))
