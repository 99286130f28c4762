"""A fleet in a cluster: `python -m bench.cluster [N]` (services; 1,000 by default). Four minutes.

A real kube-apiserver and etcd on the same cores, and kubectl on the same server in the same run:
its time is the budget of ours. Nobody acts on the objects: pods, and that they are Ready, are
written by us. `bench.rollout` has real controllers.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cluster_world import (
    FOREIGN,
    NAME,
    Bench,
    Loop,
    add_foreign,
    changes_of,
    make_ready,
    running_loop,
    writes,
)
from bench.generate_cluster_fleet import generate
from bench.table import RECONCILE, Cost, Row, program, run, show
from reconciler.kube.objects import ObjectId
from tests.support.cluster import running_cluster

ROUNDS = 7
OWNED = 5_000  # objects
BLOCKED, CHANGES = 3, 2  # exit codes
COLD_BUDGET_MS, RESYNC_BUDGET_MS, ACT_BUDGET_MS, RSS_BUDGET_MIB = 1_000, 1_000, 1_000, 160


def rows(services: int = 1_000) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, running_cluster(()) as cluster:
        bench = Bench.start(Path(folder), cluster)
        yield from _first(bench, services)
        generate(bench.repo.work, NAME, OWNED // 4)
        bench.repo.commit()
        yield from _running(bench)


def _first(bench: Bench, services: int) -> Iterator[Row]:
    """Everything is new; then nothing is."""
    what = f"{services:,} services of 4 objects"
    generate(bench.repo.work, NAME, services)
    bench.repo.commit()
    dry_run = bench.reconcile("--dry-run", "--offline")  # bench.header asks hosts for their models
    how = "--cluster --dry-run --offline"
    yield program(f"{what}, plan, cold", dry_run, COLD_BUDGET_MS, how, (CHANGES,))
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
    written = writes(before, bench.calls()) - services  # statuses: what was new is applied now
    same = run(once, (BLOCKED,))
    yield _row(f"{what}, unchanged", same, again, "reconcile --once, a whole process")
    yield Row("... objects written", "", [written], "apiserver_request_total", 0)
    yield program(f"{what}, plan of nothing, cold", dry_run, COLD_BUDGET_MS, how)


def _kubectl(bench: Bench, services: int) -> tuple[str, ...]:
    """The same objects as files, for kubectl, in a namespace of theirs."""
    source, made = bench.folder / "theirs", bench.folder / "rendered"
    generate(source, "kubectl", services)
    run((*RECONCILE, "render", "-o", str(made), "-C", str(source)))
    files = (word for folder in (source, made) for word in ("-f", str(folder)))
    return bench.kubectl("apply", "--server-side", "-R", *files)


def _running(bench: Bench) -> Iterator[Row]:
    """The loop, beside a fleet of OWNED objects whose pods are Ready."""
    what = f"loop of {OWNED:,} objects, {OWNED // 4:,} pods"
    with running_loop(bench) as loop:
        loop.settle()
        make_ready(bench.api)
        loop.settle()
        yield from _resync(bench, loop, what)
        yield from _commit(bench, loop)
        yield from _drift(bench)
        loop.wake()  # what the last repair took is given back at the end of a pass
        yield Row(f"{what}, RSS", "MiB", [loop.rss_mib()], "VmRSS", RSS_BUDGET_MIB)
        yield Row("... at its most", "MiB", [loop.most_rss_mib()], "VmHWM, first apply included")
        add_foreign(bench.api)
        loop.settle()
        how = "VmRSS: as before"
        yield Row(f"... and {FOREIGN:,} foreign ones", "MiB", [loop.rss_mib()], how, RSS_BUDGET_MIB)
    before = bench.calls()
    begin = time.perf_counter()
    with running_loop(bench) as loop:
        loop.settle()
        took_ms = (time.perf_counter() - begin) * 1e3
        written = writes(before, bench.calls())
        how = "start to the end of its second pass"
        yield Row(f"{what}, restart", "ms", [took_ms], how, cpu=[loop.cpu_s() * 1e3])
        yield Row("... writes", "", [written], "apiserver_request_total", 0)
        yield Row(f"{what}, restarted, RSS", "MiB", [loop.rss_mib()], "VmRSS", RSS_BUDGET_MIB)


def _resync(bench: Bench, loop: Loop, what: str) -> Iterator[Row]:
    before, took, cpu = bench.calls(), [], []
    for _ in range(ROUNDS):
        spent = loop.cpu_s()
        took.append(loop.wake() * 1e3)
        cpu.append((loop.cpu_s() - spent) * 1e3)
    calls = sum(bench.calls().values()) - sum(before.values())
    how = "SIGHUP: fleet_pass_seconds"
    yield Row(f"{what}, unchanged", "ms", took, how, RESYNC_BUDGET_MS, cpu)
    yield Row("... calls", "", [calls], "apiserver_request_total", 0)


def _commit(bench: Bench, loop: Loop) -> Iterator[Row]:
    took = []
    for n in range(ROUNDS):
        name = f"service-{n:05}"
        path = bench.repo.work / "services" / f"{name}.yaml"
        path.write_text(path.read_text().replace("contextSize: ", "contextSize: 1"))
        bench.repo.commit()
        with changes_of(bench.api, name) as changed:
            begin = time.perf_counter()
            loop.hang_up()
            changed(lambda live: live["metadata"]["generation"] > 1)
            took.append((time.perf_counter() - begin) * 1e3)
        loop.settle()
    yield Row("push of one file to its first PATCH", "ms", took, "SIGHUP, a watch", ACT_BUDGET_MS)


def _drift(bench: Bench) -> Iterator[Row]:
    took = []
    for n in range(ROUNDS):
        oid = ObjectId("apps", "Deployment", NAME, f"service-{50 + n:05}")
        with changes_of(bench.api, oid.name) as changed:
            edit = [{"op": "replace", "path": "/spec/revisionHistoryLimit", "value": 9}]
            bench.api.patch(oid, edit, manager="kubectl-edit")
            begin = time.perf_counter()
            changed(lambda live: live["spec"]["revisionHistoryLimit"] == 9)
            changed(lambda live: live["spec"]["revisionHistoryLimit"] != 9)
            took.append((time.perf_counter() - begin) * 1e3)
    yield Row("drift to repair", "ms", took, "an edited field, a watch", ACT_BUDGET_MS)


def _row(what: str, cost: Cost, budget: Cost | None, how: str) -> Row:
    """Seconds of one whole process; `budget` is what kubectl took."""
    return Row(what, "s", [cost.wall_s], how, budget.wall_s if budget else None, [cost.cpu_s])


if __name__ == "__main__":
    show(rows(*map(int, sys.argv[1:])))
