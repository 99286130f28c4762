"""How soon the agent knows what its processes do: `python -m bench.spawn`.

A tiny random model on each engine that is here, started by hand and by the owner of the processes
in turns. By hand: the same words, and GET /health every millisecond. The owner also proves who owns
the socket, and which model answers.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.engines.engine import EngineFound, find_engine
from agent.process.admission import ADMITS_ALL
from agent.process.events import ProcessTiming
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.owner import Processes
from agent.state.directory import StateDir
from bench.table import Row, show
from reconciler.api.digest import digest
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import service, workload
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import found_llama_server
from tests.support.ports import own_port

ROUNDS = 9
DEADLINE_S = 120.0
SPAWN_BUDGET_MS, DEATH_BUDGET_MS = 50, 100


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_llama(Path(folder) / "tiny.gguf")
        for engine in _engines():
            yield from _measured(engine, model, Path(folder) / engine.kind)


def _engines() -> Iterator[EngineFound]:
    given = found_llama_server()
    row = RUNTIMES["llama-server"]
    if given is not None:
        yield find_engine(row, {"llama-server": str(given)})
    yield find_engine(row, path=os.devnull)


def _measured(engine: EngineFound, model: Path, folder: Path) -> Iterator[Row]:
    folder.mkdir()
    own, ours, deaths, again = [], [], [], []
    with _owner(folder) as processes:
        for attempt in range(ROUNDS):
            launch = _launch(engine, model, folder, f"tiny-{attempt}")
            own.append(_by_hand(launch, folder))
            begin = time.perf_counter()
            processes.run(launch)
            ready = _wait(processes, lambda state: state.ready)
            ours.append((time.perf_counter() - begin) * 1e3)
            death, back = _killed(processes, ready)
            deaths.append(death)
            again.append(back - ProcessTiming().backoff_first_s * 1e3 - own[-1])
            processes.stop(launch.ref)
            processes.wait_for(lambda states: not states, DEADLINE_S)
    over = [with_us - without for with_us, without in zip(ours, own, strict=True)]
    what, how = f"{engine.kind} engine", f"{ROUNDS} times"
    yield Row(f"{what}: spawn to /health by hand", "ms", own, f"asked every ms, {how}")
    yield Row(f"{what}: spawn to ready", "ms", ours, f"run() to the snapshot, {how}")
    yield Row(f"{what}: spawn to ready, over its own", "ms", over, "in pairs", SPAWN_BUDGET_MS)
    yield Row(f"{what}: a dead child", "ms", deaths, "SIGKILL to the snapshot", DEATH_BUDGET_MS)
    yield Row(
        f"{what}: death to ready, over pause and its own",
        *("ms", again, f"a pause of {ProcessTiming().backoff_first_s:g} s first"),
        SPAWN_BUDGET_MS + DEATH_BUDGET_MS,
    )


@contextlib.contextmanager
def _owner(folder: Path) -> Iterator[Processes]:
    processes = Processes(StateDir.open(folder / "state"), ADMITS_ALL)
    processes.start()
    try:
        yield processes
    finally:
        processes.close(stop_children=True)


def _launch(engine: EngineFound, model: Path, folder: Path, name: str) -> Launch:
    """What the agent would start for a service."""
    port = own_port()
    row = RUNTIMES["llama-server"]
    wanted = workload(service(name, contextSize=512))
    node = NodeFacts(
        binary=engine.argv_prefix,
        port=str(port),
        threads="2",
        directory=str(folder),
        model_paths={"tiny": str(model)},
    )
    command = row.command(wanted, node)
    return Launch(
        ref=wanted.ref,
        command=command,
        inputs={},
        inputs_digest=digest({}),
        render_digest=command.digest,
        runtime=row.name,
        port=port,
        models=("tiny",),
        drain_timeout_s=0.0,
    )


def _by_hand(launch: Launch, folder: Path) -> float:
    """Milliseconds from the start of the same command to its first 200."""
    with (folder / "log").open("wb") as log:
        begin = time.perf_counter()
        process = subprocess.Popen(
            launch.command.argv,
            env={"PATH": os.environ["PATH"], **launch.command.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            while not _is_healthy(launch.port):
                if process.poll() is not None:
                    raise SystemExit((folder / "log").read_text())
                time.sleep(0.001)  # without it, the engine would lack that core
            return (time.perf_counter() - begin) * 1e3
        finally:
            process.kill()
            process.wait()


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _killed(processes: Processes, state: ProcessSnapshot) -> tuple[float, float]:
    """Milliseconds from SIGKILL until that is known, and until its successor is ready."""
    assert state.pid is not None
    begin = time.perf_counter()
    os.kill(state.pid, signal.SIGKILL)
    _wait(processes, lambda now: not now.ready)
    seen = time.perf_counter()
    _wait(processes, lambda now: now.ready)
    return (seen - begin) * 1e3, (time.perf_counter() - begin) * 1e3


def _wait(processes: Processes, condition: Callable[[ProcessSnapshot], bool]) -> ProcessSnapshot:
    """Until the only service fulfils a condition."""
    found: list[ProcessSnapshot] = []

    def check(states: tuple[ProcessSnapshot, ...]) -> bool:
        found[:] = filter(condition, states)
        return bool(found)

    assert processes.wait_for(check, DEADLINE_S), processes.snapshot()
    return found[0]


if __name__ == "__main__":
    show(rows())
