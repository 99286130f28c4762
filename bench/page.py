"""What the page of a large fleet costs its reconciler: `python -m bench.page`.

300 nodes with 3,000 services. An update is what a browser fetches after a pass: the documents of
status and plan, and the page. Then a real `reconcile follow --listen` makes passes, first alone and
then with a hundred viewers, of which half never read.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import signal
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from bench.scale.central import (
    agents_answering,
    commit_fleet,
    cpu_s,
    fleet_folder,
    running,
    states_of,
)
from bench.table import RUNS, Row, show, timed
from reconciler.api.nodestate import NodeState
from reconciler.cli.central import GARBAGE
from reconciler.cli.fleet_documents import FleetDocuments
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.loop import Pass
from reconciler.loop.desired import Desired, no_facts
from reconciler.page.render import page
from reconciler.report.nodestate import read_node_state
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from tests.support.wait import wait_for

if TYPE_CHECKING:
    import subprocess

    from reconciler.agents.left import LeftNode

NODES, EACH = 300, 10
VIEWERS = 100
PASSES = 12
UPDATE_BUDGET_MS = 50


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        yield from _updates(fleet_folder(Path(name) / "fleet", NODES, 1, each=EACH))
    with tempfile.TemporaryDirectory() as name:
        yield from _viewed(Path(name))


@dataclass
class _Agents:
    """What agents have said, as a loop has it."""

    states: dict[str, NodeState]
    left: tuple[LeftNode, ...] = ()


def _updates(root: Path) -> Iterator[Row]:
    checkout = DirectorySource(root).fetch()
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None
    desired = Desired.of(checkout, loaded, loaded.fleet, no_facts)
    answers = {f"node/{node}": _sized(state) for node, state in states_of(root).items()}
    agents = _Agents({target: _answered(answer) for target, answer in answers.items()})
    read = {target: read_node_state(state) for target, state in agents.states.items()}
    plan = desired.plan(_observed(read))
    documents = FleetDocuments(agents)  # type: ignore[arg-type]  # what it takes of AgentNodes

    def passes(news: int) -> None:
        """A pass later, `news` nodes say something else: only those are read anew."""
        for target in [*answers][:news]:
            answers[target] = _busier(answers[target])
            agents.states[target] = _answered(answers[target])
            read[target] = read_node_state(agents.states[target])
        documents.on_planned(Pass(desired, _observed(read), plan))

    before = gc.get_threshold()
    gc.set_threshold(GARBAGE)  # as the loop does
    for news in (0, 1, NODES):
        costs = []
        for _ in range(RUNS + 1):
            passes(news)
            gc.collect()  # what a pass leaves behind is no cost of the page
            costs.append(timed(lambda: page("fleet", documents())))
        walls, cpus = [wall for wall, _ in costs[1:]], [cpu for _, cpu in costs[1:]]
        what = f"page of {NODES * EACH:,} services: an update, {news} nodes with news"
        how = "status and plan as JSON, and the page"
        yield Row(what, "ms", walls, how, UPDATE_BUDGET_MS, cpus)
    gc.set_threshold(*before)


def _observed(read: Mapping[str, tuple[TargetState, tuple[Instance, ...]]]) -> Observation:
    """What was read of each target, as of now."""
    now = time.time()
    return Observation(
        {target: replace(state, seen_at=now) for target, (state, _) in read.items()},
        tuple(instance for _, instances in read.values() for instance in instances),
    )


def _answered(state: dict[str, Any]) -> NodeState:
    """As it comes over the wire: no two answers share a part."""
    return NodeState.model_validate_json(json.dumps(state))


def _sized(state: dict[str, Any]) -> dict[str, Any]:
    """With the memory of the machine, and what its services take of it."""
    budget = 60 * 2**30
    pool = {"name": "unified", "totalBytes": 64 * 2**30, "budgetBytes": budget}
    taken = {"pool": "unified", "requiredBytes": 3 * 2**30, "budgetBytes": budget}
    memory = [{**taken, "measuredBytes": 3 * 2**30 + 2**20}]
    models = [{"name": "tiny", "state": "loaded"}]
    instances = [{**each, "memory": memory, "models": models} for each in state["instances"]]
    return {**state, "pools": [{**pool, "usedByOthersBytes": 2**30}], "instances": instances}


def _busier(state: dict[str, Any]) -> dict[str, Any]:
    """One of its services is asked more, and the other programs of the machine take more."""
    first, *rest = state["instances"]
    more = {**first, "tokensPerSecond": (first.get("tokensPerSecond") or 0.0) + 1.0}
    more["requestsInFlight"] = (first.get("requestsInFlight") or 0) + 1
    pools = [{**p, "usedByOthersBytes": p["usedByOthersBytes"] + 2**20} for p in state["pools"]]
    return {**state, "instances": [more, *rest], "pools": pools}


def _viewed(folder: Path) -> Iterator[Row]:
    root = fleet_folder(folder / "fleet", NODES, 1, each=EACH)
    with agents_answering(folder, states_of(root)) as agents:
        head = commit_fleet(fleet_folder(root, NODES, agents.port, each=EACH))
        agents.restate(folder, states_of(root, head))
        with running(folder, root, "--listen=127.0.0.1:0") as process:
            agents.wait_for(process, NODES)
            port = _port(folder / "said")
            for viewers in (0, VIEWERS):
                with _viewers(port, viewers):
                    costs = _passes(process, port)
                what, how = f"page: a pass with {viewers} viewers", f"{NODES} agents without news"
                yield Row(what, "ms", costs.walls, f"{how}; CPU of the loop", cpu=costs.cpus)
                yield Row("... the other threads meanwhile", "ms", costs.others, "CPU, each pass")
            rss = _rss_mib(process.pid)
    yield Row("page: the reconciler's memory afterwards", "MiB", [rss], "resident set size")


def _port(said: Path) -> int:
    found = re.compile(r"served on port (\d+)")
    wait_for(lambda: found.search(said.read_text()) is not None, "the port")
    match = found.search(said.read_text())
    assert match is not None
    return int(match[1])


class _Costs(NamedTuple):
    """Milliseconds of each pass: its length, as the program has measured it, the CPU of the loop's
    thread, and that of all others."""

    walls: list[float]
    cpus: list[float]
    others: list[float]


def _passes(process: subprocess.Popen[bytes], port: int) -> _Costs:
    program, costs = psutil.Process(process.pid), _Costs([], [], [])
    for _ in range(PASSES):
        begun, spent, loop = _metric(port, "fleet_passes_total"), cpu_s(program), _loop_s(program)
        process.send_signal(signal.SIGHUP)
        wait_for(lambda begun=begun: _metric(port, "fleet_passes_total") > begun, "a pass")
        time.sleep(2.0)  # every browser has asked
        made = _metric(port, "fleet_passes_total") - begun
        in_loop = _loop_s(program) - loop
        costs.walls.append(_metric(port, "fleet_pass_seconds") * 1e3)
        costs.cpus.append(in_loop * 1e3 / made)
        costs.others.append((cpu_s(program) - spent - in_loop) * 1e3 / made)
    return costs


def _loop_s(program: psutil.Process) -> float:
    """CPU seconds of the first thread, which runs the loop, by the kernel's own clock: a thread's
    times in /proc/PID/stat have steps of 10 ms."""
    schedstat = Path(f"/proc/{program.pid}/task/{program.pid}/schedstat")
    return int(schedstat.read_text().split()[0]) / 1e9


def _metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def _rss_mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 2**20)


@contextmanager
def _viewers(port: int, count: int) -> Iterator[None]:
    """Half of them ask every two seconds, as a page does that nobody tells of events."""
    ended = threading.Event()
    with ExitStack() as opened:
        opened.callback(ended.set)
        for number in range(count):
            if number % 2:
                threading.Thread(target=_look, args=(port, ended), daemon=True).start()
                continue
            silent = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(OSError):  # another took its place
                silent.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield


def _look(port: int, ended: threading.Event) -> None:
    tag = ""
    while not ended.wait(2.0):
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"If-None-Match": tag})
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=10) as answer:
            tag = answer.headers["ETag"] or ""
            answer.read()


if __name__ == "__main__":
    show(rows())
