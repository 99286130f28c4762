"""A node that nobody can ask: what its agent writes into the cluster is enough for a plan."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.endpoints.heartbeat import STALE_S, lease_name
from reconciler.kube.objects import SYSTEM_NAMESPACE
from tests.support.beside_cluster import own_address
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.fleets import model, node, service
from tests.support.reconciler import Machine, Running
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, CHANGES, BLOCKED = 0, 2, 3
HERE = "node/here"


@dataclass(frozen=True, slots=True)
class Unasked:
    """A fleet in git with the node `here`, whose agent follows the cluster and has no url."""

    home: ClusterFleet
    mac: Machine
    agent: Running

    def plan(self) -> tuple[int, list[tuple[str, str]]]:
        """A dry run's exit code, and what it would do on the node, to which service."""
        done = self.home.dry_run("-o", "json")
        changes = [c for c in done.json()["changes"] if c["target"] == HERE]
        # What a process measures beside its estimate is shown, and depends on this machine's load.
        made = [c for c in changes if c["reason"] != "DriftShown"]
        return done.code, [(c["action"], c["ref"]["name"]) for c in made]


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def unasked(tmp_path: Path, cluster: Cluster, machine: Machine, tiny: Path) -> Iterator[Unasked]:
    home = ClusterFleet.create(tmp_path, cluster, machine)
    home.repo.publish(
        {
            "here.yaml": _node(),  # its address is said on the machine alone
            "tiny.yaml": model("tiny", source=f"file://{tiny}"),
        }
    )
    folder = tmp_path / "mac"
    folder.mkdir()
    with Machine(folder) as mac:
        words = ("--kubernetes", "--kubeconfig", str(cluster.kubeconfig), "--node", "here")
        running = mac.daemon(*words, "--host-ip", own_address())
        lease = ("get", "lease", lease_name("here"), "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
        wait_for(lambda: cluster.kubectl(*lease), "a heartbeat of the node")
        yield Unasked(home, mac, running)


def test_a_plan_agrees_with_what_then_happens_on_a_node_that_nobody_can_ask(
    unasked: Unasked,
) -> None:
    home, mac = unasked.home, unasked.mac

    home.push(edited=_here("edited"), plain=_here("plain"))
    home.once()

    edited, plain = mac.wait_ready("edited"), mac.wait_ready("plain")
    assert unasked.plan() == (OK, [])
    told = home.run("status")
    assert told.code == OK, told.out
    assert str(edited.port) in told.out

    home.push(edited=_here("edited", contextSize=512))
    done = home.dry_run("-o", "json").json()
    (edit,) = (c for c in done["changes"] if c["target"] == HERE and c["reason"] != "DriftShown")
    home.once()

    assert (edit["action"], edit["ref"]["name"]) == ("replace", "edited")
    assert [(f["path"], f["after"]) for f in edit["fields"]] == [("contextSize", 512)]
    assert edit["impact"]["restart"] == "restart"
    mac.wait_ready("edited", not_pid=edited.pid)
    assert mac.wait_ready("plain").pid == plain.pid
    assert unasked.plan() == (OK, [])

    home.push(edited=None)
    planned = unasked.plan()
    home.once()

    assert planned == (CHANGES, [("delete", "edited")])
    mac.wait_gone("edited")
    assert mac.wait_ready("plain").pid == plain.pid

    home.push(here=_node(hostIP=own_address()))  # what the agent said is not known any longer
    unasked.agent.end(signal.SIGKILL)
    _grow_old(home.cluster)
    silent = home.dry_run()

    assert silent.code == BLOCKED
    assert "?   default/plain" in silent.out
    assert "its agent was heard of last at " in silent.out


def _node(**agent: Any) -> str:
    spec = {"expose": "open", "clusters": [PROD], **agent}
    return node("here", agent=spec, hardware={"memory": "16Gi"})


def _here(name: str, **spec: Any) -> str:
    spec = {"contextSize": 256, "placement": {"nodes": ["here"]}, **spec}
    return service(name, "tiny", **spec)


def _grow_old(cluster: Cluster) -> None:
    """The Lease as it is when an agent was gone for long enough."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - 2 * STALE_S))
    patch = json.dumps({"spec": {"renewTime": at}})
    words = ("patch", "lease", lease_name("here"), "-n", SYSTEM_NAMESPACE, "--type=merge", "-p")
    cluster.kubectl(*words, patch)
