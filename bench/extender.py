"""What a scheduler waits for: `python -m bench.extender`.

An extender over 1,000 nodes of five classes, in a process of its own, asked over HTTP: one pod
filtered and scored, 200 schedulers at once, and its memory after thousands of calls.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from bench.table import Row, show
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels
from tests.support.scheduling import GIB, deployment, node, pod, result

NODES, PARALLEL, CALLS = 1_000, 200, 2_000
ROUNDS = 15
JUDGED_BUDGET_MS, PARALLEL_BUDGET_MS, GROWN_BUDGET_MIB = 50, 250, 16
_CLASSES = (
    NodeLabels("NVIDIA", 80 * GIB, "sm_90", int4=True, count=8),
    NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=1),
    NodeLabels("NVIDIA", 15 * GIB, "sm_75", int4=True, count=1),
    NodeLabels("NVIDIA", 16 * GIB, "sm_60", int4=False, count=2),
    NodeLabels("AMD", 64 * GIB, "gfx90a", int4=True, count=4),
)
_NAMES = [f"node-{i}" for i in range(NODES)]


def rows() -> Iterator[Row]:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    server.start()
    try:
        port = here.recv()
        asyncio.run(_at_once(port, 20))
        judged = [asyncio.run(_judged(port, f"chat-{i}")) for i in range(ROUNDS)]
        yield Row(
            f"one pod over {NODES} nodes, filter and prioritize",
            *("ms", judged, "over HTTP, each of another service", JUDGED_BUDGET_MS),
        )
        began = _cpu_s(server.pid or 0)
        slowest = [asyncio.run(_at_once(port, PARALLEL)) for _ in range(ROUNDS)]
        spent = (_cpu_s(server.pid or 0) - began) * 1e3 / ROUNDS
        yield Row(
            f"p99 of {PARALLEL} calls at once, {NODES} nodes each",
            *("ms", slowest, "prioritize; cpu: of the server, for all", PARALLEL_BUDGET_MS),
            cpu=[spent],
        )
        before = _rss_mib(server.pid or 0)
        for _ in range(CALLS // PARALLEL):
            asyncio.run(_at_once(port, PARALLEL))
        grown = _rss_mib(server.pid or 0) - before
        yield Row(f"memory grown by {CALLS} calls", "MiB", [grown], "RSS", GROWN_BUDGET_MIB)
    finally:
        here.send("end")
        server.join(10)


def _serve(pipe: Connection) -> None:
    from reconciler.http.thread import ServerThread
    from reconciler.kube.extender.app import make_app
    from reconciler.kube.extender.demand import node_facts, service_facts
    from reconciler.kube.extender.facts import ClusterFacts, MeasuredSpeeds
    from reconciler.kube.extender.judge import Judge
    from reconciler.kube.extender.tally import Sources, Tally
    from reconciler.placement.score import ScoreWeights

    named = (node(name, _CLASSES[i % 5], i % 7 / 2) for i, name in enumerate(_NAMES))
    found = {n["metadata"]["name"]: node_facts(n, {}, DEFAULT_PREFIX) for n in named}
    service = service_facts(deployment(source="x/model-Q4_0.gguf", gpu_bytes=10 * GIB))
    services = {("default", f"chat-{i}"): service for i in range(ROUNDS)}
    speeds = MeasuredSpeeds(
        ("default", result(each, 10.0 * (i + 1))) for i, each in enumerate(_CLASSES)
    )
    judge = Judge(ClusterFacts(found, services, speeds=speeds), ScoreWeights(), DEFAULT_PREFIX)
    used = {name: i % 10 / 10 for i, name in enumerate(_NAMES)}
    app = make_app(Sources(lambda: judge, lambda: used, lambda: ()), Tally())
    with ServerThread(app, "127.0.0.1", 0, connections=512) as server:
        pipe.send(server.port)
        pipe.recv()


async def _judged(port: int, service: str) -> float:
    """Milliseconds of both calls for one pod."""
    began = time.perf_counter()
    filtered = await _asked(port, "filter", _body(service, _NAMES))
    left = json.loads(filtered)["NodeNames"]
    await _asked(port, "prioritize", _body(service, left))
    return (time.perf_counter() - began) * 1e3


async def _at_once(port: int, count: int) -> float:
    """The 99th percentile, in milliseconds."""

    body = _body("chat-0", _NAMES)

    async def one() -> float:
        began = time.perf_counter()
        await _asked(port, "prioritize", body)
        return (time.perf_counter() - began) * 1e3

    found = sorted(await asyncio.gather(*(one() for _ in range(count))))
    return found[min(int(count * 0.99), count - 1)]


def _body(service: str, names: list[str]) -> bytes:
    return json.dumps({"Pod": pod(service), "Nodes": None, "NodeNames": names}).encode()


async def _asked(port: int, verb: str, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /{verb} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    answer = await reader.read()
    writer.close()
    status, _, said = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200"), status
    return said


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    show(rows())
