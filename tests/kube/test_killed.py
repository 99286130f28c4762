"""A reconciler that is killed between any two of its writes: the next one goes on from there."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes
from reconciler.core.plan import Plan
from reconciler.core.target import changes_to_apply
from reconciler.kube.client.api import ApiServer
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.target import ClusterTarget
from reconciler.kube.together import Together
from reconciler.loop.desired import NOTHING_BEFORE, Desired
from tests.support.cluster import Cluster
from tests.support.cluster_views import CLUSTER, desired, fleet
from tests.support.fleets import document

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

HOME = {"fleet.yaml": document("Fleet", "home", {})}


class Killed(BaseException):
    """No edge of ours takes it for an error."""


class MortalApi(ApiServer):
    """What a process reaches that is killed when it has written so often."""

    def live_for(self, writes: int) -> MortalApi:
        self._left, self._counting = writes, threading.Lock()
        return self

    def _send(self, method: str, *words: Any, **options: Any) -> Any:
        with self._counting:
            self._left -= method != "GET"
            if self._left < 0:
                raise Killed
        return super()._send(method, *words, **options)


def test_what_a_killed_one_left_is_neither_made_twice_nor_forgotten(
    installed_cluster: Cluster, tmp_path: Path
) -> None:
    first = desired(HOME | fleet(chat={}, embed={}))
    second = desired(HOME | fleet(chat={"contextSize": 2048}, search={}))

    assert _applied_by_many(first, installed_cluster, tmp_path) > 4
    had = _deployments(installed_cluster)
    assert _applied_by_many(second, installed_cluster, tmp_path) > 3
    has = _deployments(installed_cluster)

    assert {name: generation for name, (_, generation) in had.items()} == {"chat": 1, "embed": 1}
    assert {name: generation for name, (_, generation) in has.items()} == {"chat": 2, "search": 1}
    assert has["chat"][0] == had["chat"][0]
    names = installed_cluster.kubectl("get", "isvc,services", "-o", "name").split()
    assert not [name for name in names if "embed" in name]


def _applied_by_many(want: Desired, cluster: Cluster, folder: Path) -> int:
    """Each lives for one write more than the one before; how many it took until nothing is left."""
    for lives in range(1, 30):
        with suppress(Killed):
            if not _pass_of(want, cluster, folder, lives).changes:
                return lives
    raise AssertionError("it never ends")


def _pass_of(want: Desired, cluster: Cluster, folder: Path, writes: int) -> Plan:
    """A new process: it knows nothing but what is in the cluster."""
    client = cluster.client(CLUSTER)
    api = MortalApi(client.name, client._transport).live_for(writes)
    agents = AgentNodes(AgentCredentials(), LastSeen(folder / "seen.json"))
    together = Together(agents, (ClusterTarget(api, ObjectRenderer(CLUSTER)),))
    try:
        plan = together.plan(want, together.observe(want), (), NOTHING_BEFORE)
        together.apply(plan, changes_to_apply(plan))
        return plan
    finally:
        together.close()


def _deployments(cluster: Cluster) -> dict[str, tuple[str, int]]:
    found = cluster.json("get", "deployments")["items"]
    return {
        o["metadata"]["name"]: (o["metadata"]["uid"], o["metadata"]["generation"]) for o in found
    }
