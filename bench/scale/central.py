"""The central loop beside many agents: a real `reconcile`, and agents that only answer."""

from __future__ import annotations

import hashlib
import json
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.table import RECONCILE, Row, commit_all, timed
from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes, AgentTimeouts
from reconciler.api.nodestate import StoredState
from reconciler.core.observation import Instance, RevisionState
from reconciler.fleet.workload import Workload
from reconciler.placement.assignment import assign
from tests.support.agents import said_by
from tests.support.certificates import self_signed
from tests.support.fleets import document, load_folder, model, service, write_fleet
from tests.support.wait import wait_for

SIZES = (250, 1_000)  # nodes
PASSES = 3
SLOW = 500  # agents
SLOW_S = 1.0  # each
_SOURCE = "https://models.test/tiny.gguf"


@dataclass(frozen=True, slots=True)
class PassCost:
    """`first`: the pass that reads everything; the others, each, read what is new: nothing."""

    first_cpu_s: float
    first_bytes: float
    cpu_s: float
    wall_s: float
    sent_bytes: float
    rss_mib: float


def rows(fleets: Sequence[int]) -> Generator[Row, None, float]:
    """Returns how many agents it asks in a second."""
    costs = {}
    for nodes in SIZES:
        with tempfile.TemporaryDirectory() as name:
            costs[nodes] = _measured(Path(name), nodes)
        yield from _rows(f"central, {nodes:,} nodes", costs[nodes], "measured")
    (few, small), (many, large) = costs.items()
    for nodes in fleets:
        if nodes not in costs:
            yield from _rows(
                f"central, {nodes:,} nodes",
                _line(small, large, (nodes - few) / (many - few)),
                f"extrapolated: the line through {few} and {many:,}",
            )
    yield from _secured(fleets)
    yield from _slow()
    return many / large.wall_s


def _rows(what: str, cost: PassCost, how: str) -> Iterator[Row]:
    yield Row(f"{what}: first pass, CPU", "s", [cost.first_cpu_s], f"{how}, start included")
    yield Row("... read from agents", "KB", [cost.first_bytes / 1e3], f"{how}, HTTP")
    yield Row(f"{what}: a pass without news, CPU", "s", [cost.cpu_s], how)
    yield Row("... until the last agent has answered", "s", [cost.wall_s], f"{how}, busy cores")
    yield Row("... read from agents", "KB", [cost.sent_bytes / 1e3], f"{how}, HTTP")
    yield Row("... memory", "MiB", [cost.rss_mib], f"{how}, VmRSS")


def _line(small: PassCost, large: PassCost, share: float) -> PassCost:
    """The straight line through two measured sizes; 0 is the small one, 1 the large one."""

    def at(low: float, high: float) -> float:
        return low + (high - low) * share

    return PassCost(
        at(small.first_cpu_s, large.first_cpu_s),
        at(small.first_bytes, large.first_bytes),
        at(small.cpu_s, large.cpu_s),
        at(small.wall_s, large.wall_s),
        at(small.sent_bytes, large.sent_bytes),
        at(small.rss_mib, large.rss_mib),
    )


def _secured(fleets: Sequence[int]) -> Iterator[Row]:
    """Over https with certificates that the fleet pins, as agents elsewhere have to be asked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cert, key = self_signed(folder)
        states = {f"n{n:05}": said_by(f"n{n:05}") for n in range(SIZES[0])}
        with agents_answering(folder, states, cert, key) as agents:
            pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.read_text())).hexdigest()
            found = _nodes(fleet_folder(folder / "fleet", SIZES[0], agents.port, pin), folder)
            found.observe()
            costs = [timed(found.observe)[1] / SIZES[0] for _ in range(PASSES)]
    yield Row(
        "central, an agent asked over https: CPU", "ms", costs, "measured, AgentNodes.observe"
    )
    for nodes in fleets:
        what = f"central, {nodes:,} nodes over https: a look, CPU"
        yield Row(what, "s", [nodes * min(costs) / 1e3], "x CPU")


def _nodes(root: Path, folder: Path) -> AgentNodes:
    fleet = load_folder(root).fleet
    assert fleet is not None
    nodes = AgentNodes(AgentCredentials(), LastSeen(folder / "seen.json"))
    nodes.follow(fleet)
    return nodes


def _slow() -> Iterator[Row]:
    """Agents that take a second for each answer, as over a long way or on a busy machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with agents_answering(
            folder, {f"n{n:05}": said_by(f"n{n:05}") for n in range(SLOW)}
        ) as agents:
            agents.answer_after(SLOW_S)
            nodes = _nodes(fleet_folder(folder / "fleet", SLOW, agents.port), folder)
            began = time.perf_counter()
            found = nodes.observe()
            took_s = time.perf_counter() - began
    heard = sum(target.reachable for target in found.targets.values())
    what = f"central, {SLOW} agents that take {SLOW_S:g} s"
    limit = f"limit: {AgentTimeouts().together_s(SLOW):g} s for all"
    yield Row(f"{what}: answers in time", "", [heard], f"measured; {limit}")
    yield Row("... duration of the look", "s", [took_s], "measured")


def _measured(folder: Path, nodes: int) -> PassCost:
    root = fleet_folder(
        folder / "fleet", nodes, port=1
    )  # the port is not known yet, nor is it said
    states = states_of(root)
    with agents_answering(folder, states) as agents:
        head = commit_fleet(fleet_folder(root, nodes, agents.port))
        agents.restate(folder, states_of(root, head))
        with running(folder, root) as process:
            program = psutil.Process(process.pid)
            agents.wait_for(process, nodes)
            time.sleep(1.0)  # the plan after the last answer
            first_cpu, first_bytes = cpu_s(program), agents.seen()["sent"]
            walls, cpus, sent = [], [], []
            for _ in range(PASSES):
                spent, before = cpu_s(program), agents.seen()
                began = time.monotonic()
                process.send_signal(signal.SIGHUP)
                agents.wait_for(process, before["asked"] + nodes)
                walls.append(agents.seen()["last_at"] - began)
                time.sleep(1.0)
                now = agents.seen()
                share = nodes / (now["asked"] - before["asked"])  # a pass of its own came between
                cpus.append((cpu_s(program) - spent) * share)
                sent.append((now["sent"] - before["sent"]) * share)
            rss = program.memory_info().rss / 2**20
    return PassCost(first_cpu, first_bytes, min(cpus), min(walls), min(sent), rss)


def fleet_folder(
    root: Path, nodes: int, port: int, pin: str | None = None, *, each: int = 1
) -> Path:
    """So many services on each node."""
    scheme, certificate = ("https", {"certSha256": pin}) if pin else ("http", {})
    files = {"model.yaml": model("tiny", source=_SOURCE)}
    for n in range(nodes):
        name, url = f"n{n:05}", f"{scheme}://127.0.0.1:{port}/n{n:05}"
        agent = {"agent": {"url": url, **certificate}, "hardware": {"memory": "64Gi"}}
        files[f"nodes/{name}.yaml"] = document("FleetNode", name, agent)
        where = {"placement": {"nodes": [name]}, "runtime": "llama-server"}
        for number in range(each):
            own = f"s{number}-{name}"
            files[f"services/{own}.yaml"] = service(own, "tiny", **where)
    return write_fleet(root, files)


def states_of(root: Path, head: str = "") -> dict[str, Any]:
    """What agents say that run what is declared."""
    fleet = load_folder(root).fleet
    assert fleet is not None
    at = RevisionState(fetched=head, applied=head) if head else None
    runs: dict[str, list[Instance]] = {}
    for workload in assign(fleet, {}).workloads:
        if workload.node is not None:
            runs.setdefault(workload.node, []).append(_runs(workload))
    stored = (StoredState(sha256="0" * 64, sources=(_SOURCE,), size_bytes=1),)
    return {
        node: said_by(node, *instances, revision=at, models=stored)
        for node, instances in runs.items()
    }


def _runs(workload: Workload) -> Instance:
    return Instance(
        *(workload.ref, f"node/{workload.node}", workload.runtime, workload.inputs),
        *(workload.inputs_digest, None, None, True, "Ready"),
        since=time.time(),
        pid=4711,
        port=20000,
        endpoint="http://127.0.0.1:20000/v1/chat/completions",
    )


def commit_fleet(root: Path) -> str:
    commit_all(root, "a fleet")
    argv = ("git", "-C", str(root), "rev-parse", "HEAD")
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@dataclass(slots=True)
class Agents:
    process: subprocess.Popen[str]
    port: int

    def seen(self) -> Mapping[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/seen", timeout=60) as answer:
            found: Mapping[str, float] = json.load(answer)
        return found

    def answer_after(self, seconds: float) -> None:
        self._tell(str(seconds))

    def restate(self, folder: Path, states: Mapping[str, Any]) -> None:
        path = folder / "states.json"
        path.write_text(json.dumps(states))
        self._tell(f"@{path}")

    def wait_for(self, reconcile: subprocess.Popen[bytes], asked: float) -> None:
        def done() -> bool:
            assert reconcile.poll() is None, "reconcile has ended"
            return self.seen()["asked"] >= asked

        wait_for(done, f"{asked:g} questions")

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


@contextmanager
def agents_answering(
    folder: Path, states: Mapping[str, Any], *certificate: Path
) -> Iterator[Agents]:
    path = folder / "states.json"
    path.write_text(json.dumps(states))
    argv = (sys.executable, "-m", "bench.scale.standin", str(path), *map(str, certificate))
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, text=True, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        yield Agents(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(folder: Path, root: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ("--offline", "--interval=1h", "--timeout=1s", "-C", str(root), *more)
    cache = f"XDG_CACHE_HOME={folder / 'cache'}"
    with (folder / "said").open("wb") as out:
        argv = ("env", cache, *RECONCILE, *words)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def cpu_s(program: psutil.Process) -> float:
    """With its children: git."""
    used = program.cpu_times()
    return used.user + used.system + used.children_user + used.children_system
