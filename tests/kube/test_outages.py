"""Parts of a cluster that die while objects are written: afterwards everything is there, once."""

from __future__ import annotations

import threading

import pytest

from reconciler.core.target import Outcome, Result
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import ClusterError
from tests.support.cluster import Cluster
from tests.support.kube_world import World, config_map, deployment, service
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

_SERVICES = 24


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
def test_a_part_that_dies_while_objects_are_written_loses_nothing(
    own_cluster: Cluster, part: str
) -> None:
    api = own_cluster.client()
    world = World(api, own_cluster.namespace("apps"))
    for number in range(_SERVICES):
        name = f"s{number}"
        made = (kind(world.namespace, name) for kind in (deployment, service, config_map))
        world.declare(*made, service=name)
    outcomes: list[Outcome] = []
    applying = threading.Thread(target=lambda: outcomes.extend(world.apply()))

    applying.start()
    wait_for(lambda: len(world.live()) > 10, "some are written")
    own_cluster.stop_part(part, kill=True)
    if part == "etcd":
        own_cluster.start_etcd()
    else:
        own_cluster.start_api()
    applying.join(PATIENCE_S)

    assert not applying.is_alive()
    assert {o.result for o in outcomes} <= set(Result)
    assert len(outcomes) == 3 * _SERVICES  # each is told of, whatever became of it
    wait_for(lambda: _answers(api), "the server answers")
    world.settle()
    assert len(world.live()) == 3 * _SERVICES
    api.close()


def _answers(api: ApiServer) -> bool:
    try:
        return bool(api.raw("GET", "/readyz") == "ok")
    except ClusterError:
        return False
