"""A fleet in a cluster: `python -m bench.cluster [N]` (services; 1,000 by default). Four minutes.

A real kube-apiserver and etcd on the same cores, and kubectl on the same server in the same run:
its time is the budget of ours. Nobody acts on the objects; that pods are Ready is written by us.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.generate_cluster_fleet import CLUSTER, generate
from bench.table import RECONCILE, Cost, Row, program, run, show
from reconciler.kube.apiserver.access import open_cluster
from reconciler.kube.apiserver.client import ApiServer
from reconciler.kube.inventory import parent_id
from reconciler.kube.objects import OWNED_KINDS, ObjectId
from tests.support.cluster import Cluster, running_cluster
from tests.support.repos import Repo
from tests.support.wait import wait_for

NAME = "bench"  # of the Fleet and its namespace
ROUNDS = 7
OWNED, FOREIGN = 5_000, 5_000  # objects
BLOCKED, CHANGES = 3, 2  # exit codes
COLD_BUDGET_MS, RESYNC_BUDGET_MS, ACT_BUDGET_MS, RSS_BUDGET_MIB = 1_000, 1_000, 1_000, 120
_DEPLOYMENT = OWNED_KINDS["apps", "Deployment"]
_OURS = {row.plural for row in OWNED_KINDS.values()} | {"pods", "events"}
_WRITES = {"APPLY", "PATCH", "POST", "PUT", "DELETE"}


def rows(services: int = 1_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, running_cluster(()) as cluster:
        bench = _Bench.start(Path(folder), cluster)
        yield from _first(bench, services)
        generate(bench.repo.work, NAME, OWNED // 4)
        bench.repo.commit()
        yield from _running(bench)


@dataclass(frozen=True, slots=True)
class _Bench:
    folder: Path
    cluster: Cluster
    api: ApiServer
    repo: Repo

    @classmethod
    def start(cls, folder: Path, cluster: Cluster) -> _Bench:
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
        return {key: n for key, n in self.cluster.calls().items() if key[1] in _OURS}


def _first(bench: _Bench, services: int) -> Iterator[Row]:
    """Everything is new; then nothing is."""
    what = f"{services:,} services of 4 objects"
    generate(bench.repo.work, NAME, services)
    bench.repo.commit()
    dry_run = bench.reconcile("--dry-run")
    yield program(f"{what}, plan, cold", dry_run, COLD_BUDGET_MS, "--cluster --dry-run", (CHANGES,))
    kubectl = _kubectl(bench, services)
    theirs, again = run(kubectl), run(kubectl)
    yield _row(f"{what}, first, kubectl", theirs, None, "kubectl apply --server-side -R")
    # 1 s: it does not wait for pods that never come
    once = bench.reconcile("--once", "--timeout=1s")
    ours = run(once, (BLOCKED,))
    yield _row(f"{what}, first, statuses too", ours, theirs, "reconcile --once")
    yield _row(f"{what}, unchanged, kubectl", again, None, "the same again")
    before = bench.calls()
    run(once, (BLOCKED,))
    written = _writes(before, bench.calls()) - services  # statuses: what was new is applied now
    same = run(once, (BLOCKED,))
    yield _row(f"{what}, unchanged", same, again, "reconcile --once, a whole process")
    yield Row("... objects written", "", [written], "apiserver_request_total", 0)
    how = "--cluster --dry-run"
    yield program(f"{what}, plan of nothing, cold", dry_run, COLD_BUDGET_MS, how)


def _kubectl(bench: _Bench, services: int) -> tuple[str, ...]:
    """The same objects as files, for kubectl, in a namespace of theirs."""
    source, made = bench.folder / "theirs", bench.folder / "rendered"
    generate(source, "kubectl", services)
    run((*RECONCILE, "render", "-o", str(made), "-C", str(source)))
    files = (word for folder in (source, made) for word in ("-f", str(folder)))
    return bench.kubectl("apply", "--server-side", "-R", *files)


def _running(bench: _Bench) -> Iterator[Row]:
    """The loop, beside a fleet of OWNED objects whose pods are Ready."""
    what = f"loop of {OWNED:,} objects"
    with _loop(bench) as loop:
        loop.settle()
        _make_ready(bench.api)
        loop.settle()
        yield from _resync(bench, loop, what)
        yield from _commit(bench, loop)
        yield from _drift(bench)
        yield Row(f"{what}, RSS", "MiB", [loop.rss_mib()], "VmRSS", RSS_BUDGET_MIB)
        _add_foreign(bench.api)
        loop.settle()
        how = "VmRSS: as before"
        yield Row(f"... and {FOREIGN:,} foreign ones", "MiB", [loop.rss_mib()], how, RSS_BUDGET_MIB)
    before = bench.calls()
    begin = time.perf_counter()
    with _loop(bench) as loop:
        loop.settle()
        took_ms = (time.perf_counter() - begin) * 1e3
        written = _writes(before, bench.calls())
        how = "start to the end of its second pass"
        yield Row(f"{what}, restart", "ms", [took_ms], how, cpu=[loop.cpu_s() * 1e3])
        yield Row("... writes", "", [written], "apiserver_request_total", 0)
        yield Row(f"{what}, restarted, RSS", "MiB", [loop.rss_mib()], "VmRSS", RSS_BUDGET_MIB)


def _resync(bench: _Bench, loop: _Loop, what: str) -> Iterator[Row]:
    before, took, cpu = bench.calls(), [], []
    for _ in range(ROUNDS):
        spent = loop.cpu_s()
        took.append(loop.wake() * 1e3)
        cpu.append((loop.cpu_s() - spent) * 1e3)
    calls = sum(bench.calls().values()) - sum(before.values())
    how = "SIGHUP: fleet_pass_seconds"
    yield Row(f"{what}, unchanged", "ms", took, how, RESYNC_BUDGET_MS, cpu)
    yield Row("... calls", "", [calls], "apiserver_request_total", 0)


def _commit(bench: _Bench, loop: _Loop) -> Iterator[Row]:
    took = []
    for n in range(ROUNDS):
        name = f"service-{n:05}"
        path = bench.repo.work / "services" / f"{name}.yaml"
        path.write_text(path.read_text().replace("contextSize: ", "contextSize: 1"))
        bench.repo.commit()
        with _changes_of(bench.api, name) as changed:
            begin = time.perf_counter()
            loop.hang_up()
            changed(lambda live: live["metadata"]["generation"] > 1)
            took.append((time.perf_counter() - begin) * 1e3)
        loop.settle()
    yield Row("push of one file to its first PATCH", "ms", took, "SIGHUP, a watch", ACT_BUDGET_MS)


def _drift(bench: _Bench) -> Iterator[Row]:
    took = []
    for n in range(ROUNDS):
        oid = ObjectId("apps", "Deployment", NAME, f"service-{50 + n:05}")
        with _changes_of(bench.api, oid.name) as changed:
            edit = [{"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 9}]
            bench.api.patch(oid, edit, manager="kubectl-edit")
            begin = time.perf_counter()
            changed(lambda live: live["spec"]["revisionHistoryLimit"] == 9)
            changed(lambda live: live["spec"]["revisionHistoryLimit"] != 9)
            took.append((time.perf_counter() - begin) * 1e3)
    yield Row("drift to repair", "ms", took, "an edited field, a watch", ACT_BUDGET_MS)


@contextmanager
def _changes_of(api: ApiServer, name: str) -> Iterator[Callable[[Callable[[Any], bool]], None]]:
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


class _Loop:
    """A reconciler that runs, and looks at the repository only when it is told to."""

    def __init__(self, bench: _Bench, process: subprocess.Popen[bytes], port: int) -> None:
        self._bench = bench
        self._port = port
        self._program = psutil.Process(process.pid)

    def wake(self) -> float:
        """One pass with everything in it. Its seconds."""
        passes = self._metric("fleet_passes_total")
        self.hang_up()
        wait_for(lambda: self._metric("fleet_passes_total") > passes, "a pass", timeout_s=120)
        return self._metric("fleet_pass_seconds")

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
        while _writes(before, now := self._bench.calls()):
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

    def cpu_s(self) -> float:
        used = self._program.cpu_times()
        return float(used.user + used.system)


@contextmanager
def _loop(bench: _Bench) -> Iterator[_Loop]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = ("--interval=1h", "--timeout=1s", f"--listen=127.0.0.1:{port}")
    said = bench.folder / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(bench.reconcile(*words), stdout=out, stderr=out)
    try:
        yield _Loop(bench, process, port)
        assert process.poll() is None, said.read_text()[-2000:]
    finally:
        process.terminate()
        process.wait()


def _make_ready(api: ApiServer) -> None:
    """Write what controllers would write of Deployments whose pods are Ready."""

    def ready(live: dict[str, Any]) -> None:
        metadata, count = live["metadata"], live["spec"]["replicas"]
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {
            "observedGeneration": metadata["generation"],
            **dict.fromkeys(counts, count),
            "conditions": [{"type": "Available", "status": "True", "reason": "BenchSaysSo"}],
        }
        oid = ObjectId("apps", "Deployment", metadata["namespace"], metadata["name"])
        change = [{"op": "add", "path": "/status", "value": status}]
        api.patch(oid, change, subresource="status", manager="kube-controller-manager")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ready, api.list(_DEPLOYMENT, namespace=NAME).items))


def _add_foreign(api: ApiServer) -> None:
    """ConfigMaps of somebody else, of 1 KiB each."""

    def add(n: int) -> None:
        metadata = {"name": f"foreign-{n:05}", "namespace": "foreign"}
        data = {"text": "x" * 1024}
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(FOREIGN)))


def _row(what: str, cost: Cost, budget: Cost | None, how: str) -> Row:
    """Seconds of one whole process; `budget` is what kubectl took."""
    return Row(what, "s", [cost.wall_s], how, budget.wall_s if budget else None, [cost.cpu_s])


def _writes(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> int:
    return sum(n - before.get(key, 0) for key, n in after.items() if key[0] in _WRITES)


if __name__ == "__main__":
    show(rows(*map(int, sys.argv[1:])))
