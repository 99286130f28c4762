"""What a fleet that moves costs: `python -m bench.rollout [N ...]` (services; 200 by default).

A real kube-apiserver with its controller manager and scheduler on the same cores; kwok says that
pods are Ready. N services come from nothing, then one field of each changes, so that every pod is
replaced. 1,000 services take ten minutes, most of them the controllers' own.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster_world import NAME, Bench, Loop, running_loop
from bench.generate_cluster_fleet import generate
from bench.table import Row, show
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.objects import OWNED_KINDS, Manifest, OwnedKind
from reconciler.kube.running.readiness import readiness
from tests.support.cluster import running_cluster

CPU_BUDGET_MS, LAG_BUDGET_MS, RSS_BUDGET_MIB = 20, 2_000, 160  # CPU: of each service
_PER_NODE = 100
_LONGEST_S = 1_800.0
_KINDS = (
    OWNED_KINDS["apps", "Deployment"],
    OWNED_KINDS["inference.llmkube.dev", "InferenceService"],
)


@dataclass(slots=True)
class Ready:
    """When each object became ready, by kind and name, in seconds of the monotonic clock."""

    since: dict[tuple[str, str], float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def saw(self, live: Manifest, *, revision: str) -> None:
        key = live["kind"], live["metadata"]["name"]
        with self.changed:
            if not _is_ready(live, revision):
                self.since.pop(key, None)
            else:
                self.since.setdefault(key, time.monotonic())
            self.changed.notify_all()

    def forget(self) -> None:
        with self.changed:
            self.since.clear()

    def wait(self, services: int) -> None:
        """Until all Deployments and services are ready."""
        with self.changed:
            done = self.changed.wait_for(lambda: len(self.since) >= 2 * services, _LONGEST_S)
        if not done:
            sys.exit(f"{len(self.since)} of {2 * services} objects are ready")

    def lags_s(self) -> list[float]:
        """How long after its Deployment each service was said to be ready."""
        names = {name for _, name in self.since}
        return [
            self.since["InferenceService", n] - self.since["Deployment", n] for n in sorted(names)
        ]

    def last(self, kind: str) -> float:
        return max(at for (of, _), at in self.since.items() if of == kind)


def _is_ready(live: Manifest, revision: str) -> bool:
    if live["kind"] == "Deployment":
        return readiness(live).is_current
    status = live.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return status.get("observedRevision") == revision and conditions.get("Ready") == "True"


class Watchers:
    """Follows Deployments and services, as anybody would."""

    def __init__(self, bench: Bench, ready: Ready) -> None:
        self._bench, self._ready = bench, ready
        self.revision = ""
        self._ended = False
        self._threads = [threading.Thread(target=self._follow, args=(k,)) for k in _KINDS]

    def _follow(self, kind: OwnedKind) -> None:
        """A server as busy as this one breaks off: then it is listed again."""
        while not self._ended:
            with contextlib.suppress(ClusterError):
                found = self._bench.api.list(kind, namespace=NAME)
                for live in found.items:
                    self._ready.saw(live, revision=self.revision)
                self._watch(kind, found.resource_version)

    def _watch(self, kind: OwnedKind, version: str) -> None:
        while not self._ended:
            watch = self._bench.api.watch(
                kind, selector="", namespace=NAME, resource_version=version, timeout_s=20
            )
            for event in watch:
                version = event.resource_version
                if event.type in ("ADDED", "MODIFIED"):
                    self._ready.saw(event.object, revision=self.revision)
            watch.release()

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        yield
        self._ended = True
        for thread in self._threads:
            thread.join()


def rows(services: int = 200) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, running_cluster() as cluster:
        bench = Bench.start(Path(folder), cluster)
        for n in range(-(-2 * services // _PER_NODE)):
            room = {"cpu": "1000", "memory": "8000Gi"}
            cluster.add_node(f"node-{n}", {"pool": "gpu"}, **room)
        ready = Ready()
        watchers = Watchers(bench, ready)
        generate(bench.repo.work, NAME, 0)
        bench.repo.commit()
        with watchers.running(), running_loop(bench) as loop:
            loop.settle()
            for what, context in (("come", 4096), ("roll", 8192)):
                generate(bench.repo.work, NAME, services, autoscaled=False, context=context)
                bench.repo.commit()
                yield from _moved(bench, loop, watchers, ready, f"{services:,} services {what}")
            yield from _at_rest(bench, loop)


def _moved(bench: Bench, loop: Loop, watchers: Watchers, ready: Ready, what: str) -> Iterator[Row]:
    services = int(what.split()[0].replace(",", ""))
    ready.forget()
    watchers.revision = bench.repo.head()
    before, spent, passes = bench.calls(), loop.cpu_s(), loop.passes()
    begin = time.monotonic()
    loop.hang_up()
    ready.wait(services)
    last = ready.last("Deployment")
    lags = [1e3 * lag for lag in ready.lags_s()]
    yield Row(f"{what}: until the last pod is ready", "s", [last - begin], "a watch")
    lag_ms = 1e3 * (ready.last("InferenceService") - last)
    yield Row("... and the last service is said to be", "ms", [lag_ms], "", LAG_BUDGET_MS)
    yield Row("... the slowest of all", "ms", [max(lags)], "a watch", LAG_BUDGET_MS)
    cpu = (loop.cpu_s() - spent) * 1e3 / services
    yield Row("... CPU of the loop, a service", "ms", [cpu], "", CPU_BUDGET_MS)
    yield Row(
        "... memory of the loop, the most", "MiB", [loop.most_rss_mib()], "VmHWM", RSS_BUDGET_MIB
    )
    calls = bench.calls()
    lists = sum(n - before.get(k, 0) for k, n in calls.items() if k[0] == "LIST")
    writes = sum(n - before.get(k, 0) for k, n in calls.items() if k[0] in ("APPLY", "PATCH"))
    yield Row("... lists, of all programs", "", [lists], "apiserver_request_total")
    yield Row("... applies and patches, of all", "", [writes], "apiserver_request_total")
    yield Row("... passes", "", [loop.passes() - passes], "fleet_passes_total")


def _at_rest(bench: Bench, loop: Loop) -> Iterator[Row]:
    loop.wake()
    time.sleep(5)
    spent, begin = loop.cpu_s(), time.monotonic()
    time.sleep(20)
    share = (loop.cpu_s() - spent) / (time.monotonic() - begin)
    yield Row("at rest: CPU a minute", "s", [60 * share], "of 20 s")
    yield Row("... memory", "MiB", [loop.rss_mib()], "VmRSS", RSS_BUDGET_MIB)


if __name__ == "__main__":
    for size in [int(word) for word in sys.argv[1:]] or [200]:
        show(rows(size))
