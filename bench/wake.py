"""How soon a running agent acts: `python -m bench.wake`.

A real `fleet-agent run` on a bare repository. A service is pushed and the agent woken: until its
process is there. Then its process is killed: until /v1/events and /v1/state say so.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agent.server import served
from bench.table import Row, show
from tests.support.counting_engine import write_engine
from tests.support.fleets import model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo
from tests.support.wait import wait_for

AGENT = Path(sys.executable).parent / "fleet-agent"
ROUNDS = 7
WAKES_EVERY_S = 1.1  # the agent heeds one a second
ACTION_BUDGET_MS, DEATH_BUDGET_MS = 1_000, 100


def rows() -> Iterator[Row]:
    outcomes, spawns, told, shown = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        repo = Repo.create(Path(folder))
        tiny_llama(repo.work / "tiny.gguf")
        repo.publish({"node.yaml": node("here"), "tiny.yaml": model("tiny", source="tiny.gguf")})
        with _running(Path(folder), repo.remote) as port:
            for attempt in range(ROUNDS):
                name = f"tiny-{attempt}"
                time.sleep(WAKES_EVERY_S)
                with _events(port) as events:
                    repo.publish({f"{name}.yaml": service(name, "tiny", contextSize=512)})
                    begin = time.perf_counter()
                    _ask(port, "POST", "/v1/wake")
                    events("outcome", name)
                    outcomes.append((time.perf_counter() - begin) * 1e3)
                    _until(port, name, lambda found: found.get("pid"))
                    spawns.append((time.perf_counter() - begin) * 1e3)
                ready = _until(port, name, lambda found: found["ready"])
                with _events(port) as events:
                    begin = time.perf_counter()
                    os.kill(ready["pid"], signal.SIGKILL)
                    events("notice", name)
                    told.append((time.perf_counter() - begin) * 1e3)
                    _until(port, name, lambda found: not found["ready"])
                    shown.append((time.perf_counter() - begin) * 1e3)
                _until(port, name, lambda found: found["ready"])
    how = f"{ROUNDS} times"
    yield Row("wake after a push: first outcome", "ms", outcomes, "/v1/events", ACTION_BUDGET_MS)
    yield Row("wake after a push: a process", "ms", spawns, "/v1/state", ACTION_BUDGET_MS)
    yield Row("SIGKILL of a child: told", "ms", told, f"/v1/events, {how}", DEATH_BUDGET_MS)
    yield Row("SIGKILL of a child: not ready", "ms", shown, f"/v1/state, {how}", DEATH_BUDGET_MS)


@contextmanager
def _running(folder: Path, remote: Path) -> Iterator[int]:
    """The port of an agent that has looked at the repository once and will not by itself again."""
    state, said = folder / "state", folder / "said"
    argv = (
        *(str(AGENT), "run", "--fleet", f"file://{remote}", "--node", "here", "--port", "0"),
        *("--state-dir", str(state), "--llama-server", write_engine(folder)),
        *("--interval", "1h", "--memory-check-mode", "warn", "--stop-on-exit"),
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with said.open("wb") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out)

    def is_there() -> bool:
        if process.poll() is not None:
            sys.exit(f"fleet-agent ended with {process.returncode}:\n{said.read_text()}")
        found = served(state)
        return bool(found and found.url)

    try:
        wait_for(is_there, timeout_s=60)
        found = served(state)
        assert found is not None
        assert found.url is not None
        yield int(found.url.rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _events(port: int) -> Iterator[Callable[[str, str], None]]:
    """Waits for the next event of a kind that names a service."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/v1/events")
        answer = connection.getresponse()
        assert answer.status == 200

        def wait(kind: str, name: str) -> None:
            now = ""
            while line := answer.readline().decode().strip("\r\n") or "-":
                now = line.removeprefix("event: ") if line.startswith("event: ") else now
                if line.startswith("data: ") and now == kind and name in line:
                    return

        assert answer.readline().startswith(b"id: ")  # from here on nothing is missed
        yield wait
    finally:
        connection.close()


def _until(port: int, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """How the service stands, once that holds."""
    found: list[dict[str, Any]] = []

    def check() -> bool:
        state = json.loads(_ask(port, "GET", "/v1/state"))
        found[:] = (i for i in state["instances"] if i["ref"]["name"] == name and holds(i))
        return bool(found)

    wait_for(check, name)
    return found[0]


def _ask(port: int, method: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        return connection.getresponse().read()
    finally:
        with suppress(OSError):
            connection.close()


if __name__ == "__main__":
    show(rows())
