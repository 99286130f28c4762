"""A machine with an agent beside a cluster, from one repository: one plan, a name in the cluster
for each service, and a service that moves from one to the other."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.beside_cluster import own_address
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.fleets import model, node, service
from tests.support.ports import own_port
from tests.support.reconciler import Machine, Running
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, BLOCKED = 0, 3


@dataclass(frozen=True, slots=True)
class Beside:
    """A fleet with the pool `edge` and the node `here`, whose agent runs and publishes."""

    home: ClusterFleet
    mac: Machine
    agent: Running

    def slices(self) -> list[dict[str, Any]]:
        """Those of the service that ours or the agent wrote."""
        words = ("get", "endpointslices", "-l", "inference.llmkube.dev/node=here")
        found: list[dict[str, Any]] = self.home.cluster.json(*words)["items"]
        return found

    def is_ready(self) -> bool:
        return any(s["endpoints"][0]["conditions"]["ready"] for s in self.slices())


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def beside(tmp_path: Path, cluster: Cluster, machine: Machine, tiny: Path) -> Iterator[Beside]:
    home = ClusterFleet.create(tmp_path, cluster, machine)
    port = own_port()
    agent = {
        "url": f"http://127.0.0.1:{port}",
        "hostIP": own_address(),
        "expose": "open",
        "clusters": [PROD],
    }
    home.repo.publish(
        {
            "here.yaml": node("here", agent=agent, hardware={"memory": "16Gi"}),
            "tiny.yaml": model("tiny", source="models/tiny.gguf"),
            "models/tiny.gguf": tiny.read_bytes(),
        }
    )
    folder = tmp_path / "mac"
    folder.mkdir()
    with Machine(folder) as mac:
        running = mac.daemon(
            "--fleet", str(home.repo.remote), "--node", "here", env={"FLEET_PORT": str(port)}
        )
        yield Beside(home, mac, running)


def test_one_plan_spans_both_and_a_node_has_a_name_in_the_cluster(beside: Beside) -> None:
    home = beside.home
    home.push(
        chat=service("chat", "phi", placement={"nodes": ["edge"]}),
        mini=service("mini", "tiny", placement={"nodes": ["here"]}),
    )

    home.once()

    mini = beside.mac.wait_ready("mini")
    wait_for(beside.is_ready, "an endpoint of the node")
    (found,) = beside.slices()
    assert found["endpoints"][0]["addresses"] == [own_address()]
    assert found["ports"][0]["port"] == mini.port
    named = home.cluster.json("get", "service", "mini")["spec"]
    assert (named.get("selector"), named["ports"][0]["port"]) == (None, 8080)
    plan = home.dry_run()
    assert "cluster prod " in plan.out
    assert "node here " in plan.out
    assert plan.code == OK, plan.out


def test_the_endpoints_of_a_machine_that_is_silent_are_withdrawn(beside: Beside) -> None:
    home = beside.home
    home.push(mini=service("mini", "tiny", placement={"nodes": ["here"]}))
    home.once()
    wait_for(lambda: home.once() and beside.is_ready(), "an endpoint")

    beside.agent.end(signal.SIGTERM)
    done = home.run("--once", "--timeout", "5s")

    assert done.code == BLOCKED
    assert not beside.is_ready()
    assert beside.slices()


def test_a_service_that_moves_stays_until_it_answers_where_it_goes(beside: Beside) -> None:
    """From the cluster to the node and back. Who waits is told when nothing is left of it."""
    home = beside.home
    home.push(mini=service("mini", "tiny", placement={"nodes": ["edge"]}))
    home.run("--once", "--timeout", "20s")
    beside.agent.process.send_signal(signal.SIGSTOP)

    home.push(mini=service("mini", "tiny", placement={"nodes": ["here"]}))
    waiting = home.run("--once", "--timeout", "20s", "--allow-unreachable")
    kept = home.cluster.kubectl("get", "deployment", "mini", check=False)
    beside.agent.process.send_signal(signal.SIGCONT)
    home.once()
    in_cluster = home.cluster.kubectl("get", "deployments,pods", "--no-headers")
    on_node = beside.mac.instance("mini")
    told = home.cluster.json("get", "isvc", "mini")["status"]
    soon = {"handover": "1s"}  # which ends no copy
    home.push(mini=service("mini", "tiny", placement={"nodes": ["edge"]}, rollout=soon))
    back = home.run("--once", "--timeout", "20s")
    copy = beside.mac.instance("mini")
    word = beside.mac.agent("stop", "mini")  # as the plan says: an agent asks no cluster
    home.once()
    still = beside.mac.instance("mini")

    assert waiting.code == BLOCKED
    assert "NotReachable: it stays on cluster prod until it is ready on node here" in waiting.out
    assert "cluster prod (waiting): default/mini is kept as it is: NotReachable" in waiting.err
    assert re.search(r"\d of 2 targets ready on \S+ after", waiting.err)
    assert "1/1" in kept
    assert in_cluster == ""
    assert on_node is not None
    assert on_node.ready
    said = {c["type"]: (c["status"], c["reason"]) for c in told["conditions"]}
    assert said["Ready"] == ("True", "Ready")
    assert "Reconciling" not in said
    assert back.code == BLOCKED
    assert "`fleet-agent stop default/mini` here ends this copy" in back.err
    assert copy is not None
    assert copy.ready
    assert (word.code, still) == (0, None)
    assert "1/1" in home.cluster.kubectl("get", "deployment", "mini")


def test_the_name_of_a_service_that_left_the_cluster_leads_to_the_node_alone(
    beside: Beside,
) -> None:
    home = beside.home
    home.push(mini=service("mini", "tiny", placement={"nodes": ["edge"]}))
    home.run("--once", "--timeout", "20s")

    home.push(mini=service("mini", "tiny", placement={"nodes": ["here"]}))
    running = home.loop()

    def addresses() -> set[str]:
        words = ("get", "endpointslices", "-l", "kubernetes.io/service-name=mini")
        slices = home.cluster.json(*words)["items"]
        return {a for s in slices for e in s["endpoints"] or () for a in e["addresses"]}

    def selector() -> object:
        return home.cluster.json("get", "service", "mini")["spec"].get("selector")

    wait_for(lambda: addresses() == {own_address()}, "the pods' addresses gone")
    wait_for(lambda: selector() is None, "a Service without a selector")
    assert addresses() == {own_address()}
    assert running.process.poll() is None
