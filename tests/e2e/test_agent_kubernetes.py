"""`fleet-agent run --kubernetes`: a node that takes its services from a cluster's API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.beside_cluster import NODE, BesideCluster, own_address
from tests.support.client import complete
from tests.support.cluster import Cluster
from tests.support.reconciler import Machine, Running
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]


def _start(machine: Machine, cluster: Cluster, *words: str) -> Running:
    place = ("--kubernetes", "--kubeconfig", str(cluster.kubeconfig), "--node", NODE)
    return machine.daemon(*place, *words)


def test_what_a_cluster_declares_runs_here_and_is_found_there(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny)
    beside.declare("chat")
    beside.say("r1", "chat")

    _start(machine, cluster)

    chat = machine.wait_ready("chat")
    found = beside.wait_published("chat")
    assert found["endpoints"][0]["addresses"] == [own_address()]
    assert found["ports"][0]["port"] == chat.port
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "chat"
    assert chat.endpoint
    assert complete(chat.endpoint)
    wait_for(lambda: beside.instance("chat").get("ready") is True)
    assert beside.instance("chat")["port"] == chat.port
    wait_for(lambda: beside.observed().get("revision") == "r1")
    wait_for(lambda: beside.lease() is not None)
