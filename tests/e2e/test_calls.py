"""What a loop asks of an API server: nothing while nothing happens, and what a change needs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fault_proxy import FaultProxy
from tests.support.fleets import service
from tests.support.ports import own_ports
from tests.support.reconciler import Machine, Running
from tests.support.served_node import request
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

MANY = 6
_MOST_A_SERVICE = 12  # its document and Deployment, five states at most, and what events say


class Counted:
    """A loop behind a proxy that counts. Leases are renewed whatever happens."""

    def __init__(self, home: ClusterFleet, proxy: FaultProxy, running: Running, port: int) -> None:
        self.home, self.proxy, self.running, self.port = home, proxy, running, port

    def calls(self) -> list[tuple[str, str]]:
        quiet = ("/leases/", "watch=1")
        return [r for r in self.proxy.requests if not any(word in r[1] for word in quiet)]

    def passes(self) -> float:
        url = f"http://127.0.0.1:{self.port}"
        return request(url, "GET", "/metrics").metrics()["fleet_passes_total"]

    def look(self) -> None:
        before = self.passes()
        self.running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.passes() > before, "a pass")

    def settle(self) -> int:
        """Until passes ask for nothing more. How many calls there were."""
        before = -1
        while (now := len(self.calls())) != before:
            before = now
            self.home.cluster.wait("isvc", "--all", "-n=default", "--for=condition=Ready")
            self.look()
        return now

    def change(self, services: int, context: int) -> int:
        files = {f"s{n}": service(f"s{n}", "phi", contextSize=context) for n in range(services)}
        before, head = len(self.calls()), self.home.push(**files)
        self.look()
        named = [f"isvc/s{n}" for n in range(services)]
        self.home.cluster.wait(*named, f"--for=jsonpath={{.status.observedRevision}}={head}")
        return self.settle() - before


@pytest.fixture
def counted(tmp_path: Path, installed_cluster: Cluster, machine: Machine) -> Iterator[Counted]:
    home = ClusterFleet.create(tmp_path, installed_cluster, machine)
    home.push(**{f"s{n}": service(f"s{n}", "phi") for n in range(MANY)})
    (port,) = own_ports(1)
    with FaultProxy(installed_cluster.client().grant()) as proxy:
        kubeconfig = proxy.write_kubeconfig(tmp_path / "counted")
        words = ("--interval=1h", f"--listen=127.0.0.1:{port}")
        running = home.loop(*words, kubeconfig=kubeconfig)
        home.cluster.wait("isvc", "--all", "-n=default", "--for=create")
        yield Counted(home, proxy, running, port)


def test_nothing_new_costs_no_call_and_a_change_what_it_changes(counted: Counted) -> None:
    began = counted.settle()
    assert began > 3 * MANY

    for _ in range(3):
        counted.look()
    assert counted.calls()[began:] == []

    pod = counted.home.cluster.json("get", "pods", "-n=default")["items"][0]["metadata"]["name"]
    words = ("--subresource=status", "--type=merge", "-p", '{"status":{"message":"still here"}}')
    counted.home.cluster.kubectl("patch", "pod", pod, "-n=default", *words)
    counted.look()
    assert counted.calls()[began:] == []

    for services, context in ((2, 8192), (MANY, 16384)):
        assert counted.change(services, context) <= 10 + _MOST_A_SERVICE * services
    lists = [r for r in counted.calls()[began:] if r[0] == "GET" and r[1].count("/") < 7]
    assert lists == []
