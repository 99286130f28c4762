"""A fleet in a real cluster to be measured: kubectl and ours beside it, and a loop that runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.generate_cluster_fleet import CLUSTER
from bench.table import RECONCILE, run
from reconciler.kube.client.access import open_cluster
from reconciler.kube.client.api import ApiServer
from reconciler.kube.inventory import parent_id
from reconciler.kube.objects import OWNED_KINDS, ObjectId
from tests.support.cluster import Cluster
from tests.support.repos import Repo
from tests.support.wait import wait_for

NAME = "bench"  # of the Fleet and its namespace
FOREIGN = 5_000  # objects
_DEPLOYMENT = OWNED_KINDS["apps", "Deployment"]
_OURS = {row.plural for row in OWNED_KINDS.values()} | {"pods", "events"}
_SERVERS_OWN = {("GET", "endpointslices")}  # its own address, looked at every 10 s
_WRITES = {"APPLY", "PATCH", "POST", "PUT", "DELETE"}


@dataclass(frozen=True, slots=True)
class Bench:
    folder: Path
    cluster: Cluster
    api: ApiServer
    repo: Repo

    @classmethod
    def start(cls, folder: Path, cluster: Cluster) -> Bench:
        """A cluster with our kinds, and an empty repository."""
        api = open_cluster(CLUSTER, "test", kubeconfig=cluster.kubeconfig)
        made = cls(folder, cluster, api, Repo.create(folder / "git"))
        run(made.reconcile("install", fleet=False))
        for name in (NAME, "kubectl", "foreign"):
            cluster.namespace(name)
        return made

    def reconcile(self, *words: str, fleet: bool = True) -> tuple[str, ...]:
        where = ("-C", str(self.repo.remote)) if fleet else ()
        to = (f"--cluster={CLUSTER}=test", f"--kubeconfig={self.cluster.kubeconfig}")
        cache = f"XDG_CACHE_HOME={self.folder / 'cache'}"
        return ("env", cache, *RECONCILE, *words, *to, *where)

    def kubectl(self, *words: str) -> tuple[str, ...]:
        program = str(self.cluster.programs / "kubectl")
        return (program, f"--kubeconfig={self.cluster.kubeconfig}", *words)

    def calls(self) -> dict[tuple[str, str], int]:
        """Those about kinds that a fleet consists of."""
        found = self.cluster.calls().items()
        return {key: n for key, n in found if key[1] in _OURS and key not in _SERVERS_OWN}


class Loop:
    """A reconciler that runs, and looks at the repository only when it is told to."""

    def __init__(self, bench: Bench, process: subprocess.Popen[bytes], port: int) -> None:
        self._bench = bench
        self._port = port
        self._program = psutil.Process(process.pid)

    def wake(self) -> float:
        """One pass with everything in it. Its seconds."""
        passes = self._metric("fleet_passes_total")
        self.hang_up()
        wait_for(lambda: self._metric("fleet_passes_total") > passes, "a pass", timeout_s=120)
        return self._metric("fleet_pass_seconds")

    def passes(self) -> float:
        return self._metric("fleet_passes_total")

    def hang_up(self) -> None:
        self._program.send_signal(signal.SIGHUP)

    def settle(self) -> None:
        """The newest revision is applied, and passes find nothing more to write."""
        head = self._bench.repo.head()

        def applied() -> bool:
            if not self._program.is_running() or self._program.status() == psutil.STATUS_ZOMBIE:
                sys.exit(f"it ended:\n{(self._bench.folder / 'said').read_text()[-2000:]}")
            parent = self._bench.api.get(parent_id(NAME))
            return parent is not None and (parent.get("data") or {}).get("revision") == head

        wait_for(applied, "the revision is applied", timeout_s=300)
        # a signal before the first pass would end it
        wait_for(lambda: self._metric("fleet_passes_total") > 0, "a pass", timeout_s=120)
        before: dict[tuple[str, str], int] = {}
        while writes(before, now := self._bench.calls()):
            before = now
            self.wake()
            time.sleep(1.5)  # a watch may wake it again

    def _metric(self, name: str) -> float:
        try:
            url = f"http://127.0.0.1:{self._port}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0  # it has not begun to listen
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def rss_mib(self) -> float:
        return float(self._program.memory_info().rss / 2**20)

    def most_rss_mib(self) -> float:
        """Of its whole life. Linux only."""
        lines = Path(f"/proc/{self._program.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def cpu_s(self) -> float:
        used = self._program.cpu_times()
        return float(used.user + used.system)


@contextmanager
def running_loop(bench: Bench) -> Iterator[Loop]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = ("--interval=1h", "--timeout=1s", f"--listen=127.0.0.1:{port}")
    said = bench.folder / "said"
    env = {**os.environ, "MALLOC_ARENA_MAX": "2"}  # as the chart runs it
    with said.open("wb") as out:
        process = subprocess.Popen(bench.reconcile(*words), stdout=out, stderr=out, env=env)
    try:
        yield Loop(bench, process, port)
        assert process.poll() is None, said.read_text()[-2000:]
    finally:
        process.terminate()
        process.wait()


def make_ready(api: ApiServer) -> None:
    """Write what controllers and a kubelet would write of Deployments: pods, all of them Ready."""
    account = {"name": "default", "namespace": NAME}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})

    def ready(live: dict[str, Any]) -> None:
        metadata, count = live["metadata"], live["spec"]["replicas"]
        for n in range(count):
            _add_pod(api, live, n)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {
            "observedGeneration": metadata["generation"],
            **dict.fromkeys(counts, count),
            "conditions": [{"type": "Available", "status": "True", "reason": "BenchSaysSo"}],
        }
        _say(api, ObjectId("apps", "Deployment", NAME, metadata["name"]), status)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ready, api.list(_DEPLOYMENT, namespace=NAME).items))


def _add_pod(api: ApiServer, deployment: dict[str, Any], n: int) -> None:
    """One that is Ready, from the template, of a ReplicaSet that nobody made."""
    name, template = f"{deployment['metadata']['name']}-{n}", deployment["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "1"}
    metadata = {**template["metadata"], "name": name, "namespace": NAME, "ownerReferences": [owner]}
    spec = {**template["spec"], "schedulerName": "nobody"}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": kind, "status": "True"} for kind in kinds]
    _say(api, ObjectId("", "Pod", NAME, name), {"phase": "Running", "conditions": conditions})


def _say(api: ApiServer, oid: ObjectId, status: dict[str, Any]) -> None:
    change = [{"op": "add", "path": "/status", "value": status}]
    api.patch(oid, change, subresource="status", manager="kube-controller-manager")


def add_foreign(api: ApiServer) -> None:
    """ConfigMaps of somebody else, of 1 KiB each."""

    def add(n: int) -> None:
        metadata = {"name": f"foreign-{n:05}", "namespace": "foreign"}
        data = {"text": "x" * 1024}
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(FOREIGN)))


@contextmanager
def changes_of(api: ApiServer, name: str) -> Iterator[Callable[[Callable[[Any], bool]], None]]:
    """Waits for a change of a Deployment after which that holds."""
    selector = f"inference.llmkube.dev/inference-service={name}"
    version = api.list(_DEPLOYMENT, selector=selector, namespace=NAME).resource_version
    watch = api.watch(
        _DEPLOYMENT, selector=selector, namespace=NAME, resource_version=version, idle_s=60
    )
    try:
        yield lambda holds: next(None for e in watch if e.type == "MODIFIED" and holds(e.object))
    finally:
        watch.release()


def writes(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> int:
    return sum(n - before.get(key, 0) for key, n in after.items() if key[0] in _WRITES)
