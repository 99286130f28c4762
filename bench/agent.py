"""What a node's agent costs that has nothing to do: `python -m bench.agent`.

A real `fleet-agent run` with its server, over a git repository, and 50 services that are ready on a
tiny engine; of the agent's own process, not the engines'.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from agent.server import served
from bench.table import Row, commit_all, show
from tests.support.counting_engine import write_engine
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.wait import wait_for

AGENT = Path(sys.executable).parent / "fleet-agent"
WATCHED_S = 60.0
ASKED = 200
CPU_BUDGET, RSS_BUDGET, ANSWER_BUDGET = 1.0, 80.0, 5.0  # % of a core, MiB, ms


def rows() -> Iterator[Row]:
    for count in (1, 50):
        with (
            tempfile.TemporaryDirectory() as folder,
            _running(Path(folder), count) as (agent, port),
        ):
            before, begin = agent.cpu_times(), time.monotonic()
            time.sleep(WATCHED_S)
            after, took_s = agent.cpu_times(), time.monotonic() - begin
            busy_s = after.user + after.system - before.user - before.system
            memory = agent.memory_full_info()
            answers = [_ask(port, "/v1/state", {}) for _ in range(ASKED)]
            known = {"If-None-Match": _tag(port)}
            polls = [_ask(port, "/v1/state", known) for _ in range(ASKED)]
            metrics = [_ask(port, "/metrics", {}) for _ in range(ASKED)]
            looks = [_ask(port, "/", {}) for _ in range(ASKED)]
            busy_rss = agent.memory_info().rss / 2**20
        what, how = f"agent, {count} processes", f"over {WATCHED_S:.0f} s"
        yield Row(f"{what}: CPU of a core", "%", [100 * busy_s / took_s], how, CPU_BUDGET)
        yield Row(f"{what}: memory", "MiB", [memory.rss / 2**20], "resident set size", RSS_BUDGET)
        yield Row(f"{what}: memory, its share", "MiB", [memory.pss / 2**20], "proportional (PSS)")
        yield Row(f"{what}: memory after {4 * ASKED} answers", "MiB", [busy_rss], "RSS", RSS_BUDGET)
        yield Row(f"{what}: GET /v1/state", "ms", answers, "a connection each", ANSWER_BUDGET)
        yield Row(f"{what}: the same, nothing new", "ms", polls, "304", ANSWER_BUDGET)
        yield Row(f"{what}: its page", "ms", looks, "GET /, a connection each")
        yield Row(f"{what}: GET /metrics", "ms", metrics, "a connection each")


@contextmanager
def _running(folder: Path, count: int) -> Iterator[tuple[psutil.Process, int]]:
    """The agent, once every service is ready, and the port of its server."""
    fleet, state, said = folder / "fleet", folder / "state", folder / "said"
    names = [f"tiny-{n}" for n in range(count)]
    services = {f"{n}.yaml": service(n, "tiny", contextSize=512) for n in names}
    own = {"node.yaml": node("here"), "tiny.yaml": model("tiny", source="tiny.gguf")}
    write_fleet(fleet, own | services)
    tiny_llama(fleet / "tiny.gguf")
    commit_all(fleet, "a small fleet")
    argv = (
        *(str(AGENT), "run", "--fleet", str(fleet), "--port", "0"),
        *("--state-dir", str(state), "--llama-server", write_engine(folder)),
        *("--memory-check-mode", "warn", "--stop-on-exit"),
    )
    # As in the unit that `fleet-agent install` writes: glibc keeps memory apart for each thread.
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "MALLOC_ARENA_MAX": "2"}
    with said.open("wb") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out)

    def port() -> int | None:
        if process.poll() is not None:
            sys.exit(f"fleet-agent ended with {process.returncode}:\n{said.read_text()}")
        found = served(state)
        return int(found.url.rpartition(":")[2]) if found and found.url else None

    try:
        wait_for(lambda: port() is not None, timeout_s=60)
        there = port()
        assert there is not None
        while _ready(there) < count:
            time.sleep(1)  # asking without a pause would be a part of what is measured
        time.sleep(5)  # what comes after the start
        yield psutil.Process(process.pid), there
    finally:
        process.terminate()
        process.wait()


def _ready(port: int) -> int:
    return sum(i["ready"] for i in json.loads(_get(port, "/v1/state", {})[1])["instances"])


def _tag(port: int) -> str:
    return _get(port, "/v1/state", {})[0]


def _ask(port: int, path: str, headers: dict[str, str]) -> float:
    """Milliseconds until it was answered."""
    begin = time.perf_counter()
    _get(port, path, headers)
    return (time.perf_counter() - begin) * 1e3


def _get(port: int, path: str, headers: dict[str, str]) -> tuple[str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.headers.get("ETag", ""), answer.read()
    finally:
        connection.close()


if __name__ == "__main__":
    show(rows())
