"""One API server to which nodes report: a real kube-apiserver, and what agents ask of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil

from agent.cluster.endpoints import RESYNC_S
from agent.cluster.status import node_status
from bench.scale.polls import renewal, simulate
from bench.table import RECONCILE, Row, run
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.stream import Watch
from reconciler.kube.endpoints.heartbeat import LEASES_PATH, RENEW_S, lease_manifest
from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import OWNED_KINDS, Manifest
from tests.support.cluster import Cluster, running_cluster

RENEWALS, LISTS, WRITES, WATCHERS = 600, 500, 80, 50
SIZES = (200, 2_000)  # slices, one a node
_NODES = OWNED_KINDS[GROUP, "FleetNode"]
_SLICE = OWNED_KINDS["discovery.k8s.io", "EndpointSlice"]


def rows(fleets: Sequence[int]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, running_cluster(()) as cluster:
        config = f"--kubeconfig={cluster.kubeconfig}"
        run(("env", f"XDG_CACHE_HOME={name}", *RECONCILE, "install", "--cluster=prod=test", config))
        cluster.namespace("bench")
        server = Server(cluster)
        yield from _renewals(server, fleets)
        yield from _lists(server, fleets)
        yield from _watches(server, fleets)
        server.api.close()


class Server:
    """A cluster's API, and the CPU time of the server and of its etcd."""

    def __init__(self, cluster: Cluster) -> None:
        self.api: ApiServer = cluster.client()
        parts = (cluster.parts[name] for name in ("kube-apiserver", "etcd"))
        self._programs = [psutil.Process(part.pid) for part in parts]

    def spent_ms(self, step: Callable[[], object], times: int) -> float:
        """CPU of each of so many."""
        time.sleep(1.0)  # what came before
        before = self._cpu_s()
        step()
        return (self._cpu_s() - before) * 1e3 / times

    def many(self, step: Callable[[int], object], times: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(step, range(times)))

    def _cpu_s(self) -> float:
        used = [program.cpu_times() for program in self._programs]
        return sum(each.user + each.system for each in used)


def _renewals(server: Server, fleets: Sequence[int]) -> Iterator[Row]:
    def renew(n: int) -> None:
        node = f"n{n:05}"
        server.api.apply(lease_manifest(node, "host_1", time.time()), manager=node, force=True)

    server.many(renew, RENEWALS)
    each_ms = server.spent_ms(lambda: server.many(renew, RENEWALS), RENEWALS)
    how = f"measured, mean of {RENEWALS}, API server and etcd"
    yield Row("cluster, a Lease renewed: CPU", "ms", [each_ms], how)
    query = {"labelSelector": NODE_LABEL}
    listed = server.api.raw("GET", LEASES_PATH, query=query)
    lease = len(to_json(listed)) / RENEWALS
    yield Row("... its bytes in a list", "B", [lease], "measured, JSON")
    for nodes in fleets:
        asked = simulate(nodes, renewal, 600.0)
        what = f"cluster, {nodes:,} nodes: Leases renewed a second"
        mean = asked.mean(300.0, 600.0)
        yield Row(what, "", [mean], f"simulated, every {RENEW_S:g} s")
        yield Row("... in the busiest second", "", [asked.peak(300.0, 600.0)], "simulated")
        yield Row("... cores", "", [mean * each_ms / 1e3], "x CPU")
        yield Row("... read by each pass of the loop", "KB", [nodes * lease / 1e3], "x bytes")


def _lists(server: Server, fleets: Sequence[int]) -> Iterator[Row]:
    """What each agent lists every minute: its slices among all of them."""
    costs: dict[int, float] = {}
    made = 0
    for size in SIZES:
        first = made
        server.many(lambda n, first=first: server.api.apply(_slice(first + n)), size - made)
        made = size

        def ask(n: int) -> None:
            server.api.list(_SLICE, selector=f"{NODE_LABEL}=n{n:05}")

        server.many(ask, LISTS)
        costs[size] = server.spent_ms(lambda: server.many(ask, LISTS), LISTS)
        what = f"cluster, an agent lists its slices, of {size:,}: CPU"
        yield Row(what, "ms", [costs[size]], f"measured, mean of {LISTS}")
    (few, low), (many, high) = costs.items()
    for nodes in fleets:
        each_ms = max(low, low + (high - low) * (nodes - few) / (many - few))
        what = f"cluster, {nodes:,} nodes: lists a second"
        yield Row(what, "", [nodes / RESYNC_S], f"every {RESYNC_S:g} s")
        yield Row("... cores", "", [nodes / RESYNC_S * each_ms / 1e3], "line through both sizes")


def _watches(server: Server, fleets: Sequence[int]) -> Iterator[Row]:
    """What a status that one agent writes costs when every agent watches all FleetNodes."""
    server.many(lambda n: server.api.apply(_node(n)), WRITES)

    def write(revision: str) -> None:
        server.many(lambda n: _report(server.api, n, revision), WRITES)

    write("a" * 40)
    alone_ms = server.spent_ms(lambda: write("b" * 40), WRITES)
    version = server.api.list(_NODES).resource_version
    with _watching(server.api, version) as seen:
        _until(write, seen)
    event = sum(seen) / len(seen)  # a watch that is read too slowly is ended by the server
    yield Row("cluster, a status written: CPU", "ms", [alone_ms], f"measured, mean of {WRITES}")
    how = f"measured, JSON, {WATCHERS} watches"
    yield Row("... bytes for each agent that watches", "B", [event], how)
    for nodes in fleets:
        # One by the reconciler, what is to run, and one by the agent, what does.
        writes = 2 * nodes
        what = f"cluster, {nodes:,} nodes, a new revision: statuses"
        yield Row(what, "", [writes], "two a node")
        yield Row("... CPU to write them", "s", [writes * alone_ms / 1e3], "x CPU")
        sent = writes * nodes * event / 1e9
        yield Row("... sent to agents that watch", "GB", [sent], "statuses x nodes x bytes")


@contextmanager
def _watching(api: ApiServer, version: str) -> Iterator[list[int]]:
    """Watches of all FleetNodes, by as many agents: the bytes of each event."""
    watches = [
        api.watch(_NODES, selector="", resource_version=version, timeout_s=120)
        for _ in range(WATCHERS)
    ]
    seen: list[int] = []

    def read(watch: Watch) -> None:
        for event in watch:
            if event.type == "MODIFIED":
                seen.append(len(to_json(event.object)))  # noqa: PERF401 - by many threads

    with ThreadPoolExecutor(WATCHERS) as pool:
        for watch in watches:
            pool.submit(read, watch)
        try:
            yield seen
        finally:
            for watch in watches:
                watch.close()


def _until(write: Callable[[str], None], seen: Sequence[int]) -> None:
    """Write, and give those who watch the time to read."""
    write("c" * 40)
    before = -1
    while before != (before := len(seen)):
        time.sleep(0.5)


def _slice(n: int) -> Manifest:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"s-n{n:05}",
            "namespace": "bench",
            "labels": {NODE_LABEL: f"n{n:05}", "kubernetes.io/service-name": f"s-n{n:05}"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 20000}],
    }


def _node(n: int) -> Manifest:
    spec: dict[str, Any] = {"agent": {"clusters": ["prod"]}, "hardware": {"memory": "64Gi"}}
    name = {"name": f"n{n:05}"}
    return {"apiVersion": API_VERSION, "kind": "FleetNode", "metadata": name, "spec": spec}


def _report(api: ApiServer, n: int, revision: str) -> None:
    """As an idle agent of one service says it."""
    observed = {
        "agentVersion": "1.0.0",
        "hostIP": "10.0.0.1",
        "revision": revision,
        "runtimes": ["llama-server"],
        "pools": [{"name": "host", "totalBytes": 2**36, "budgetBytes": 2**35}],
    }
    status = node_status(f"n{n:05}", observed)
    api.apply(status, manager=f"m{n}", force=True, subresource="status")
