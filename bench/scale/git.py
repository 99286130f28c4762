"""A git server that agents ask: real polls of a real `git http-backend`, many by simulation."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from bench.generate_fleet import generate
from bench.scale.polls import INTERVAL_S, poll_pause_s, simulate
from bench.table import Row
from reconciler.source.git import GitSource
from tests.support.git_http import GitServer, git_server
from tests.support.repos import Repo

SERVICES, PULLS = 1_000, 2_000  # in the repository: services, and refs of pull requests
CLONES, POLLS, COMMITS = 3, 50, 10
_LASTS_S, _STEADY_S = 600.0, 120.0
_BOOT_S = 60.0


@dataclass(frozen=True, slots=True)
class FetchCost:
    """Of one fetch, on average: server CPU is that of `git http-backend` and its children."""

    requests: float
    sent_bytes: float
    received_bytes: float
    server_ms: float
    agent_ms: float


def rows(fleets: Sequence[int]) -> Generator[Row, None, FetchCost]:
    """Returns what the fetch of one commit costs."""
    with tempfile.TemporaryDirectory() as name:
        clone, poll, commit = _measured(Path(name))
    what = f"git, {SERVICES:,} services, {PULLS:,} other refs"
    yield from _rows(f"{what}: clone", clone, CLONES)
    yield from _rows(f"{what}: poll, no news", poll, POLLS)
    yield from _rows(f"{what}: fetch of one commit", commit, COMMITS)
    for nodes in fleets:
        yield from _of_a_fleet(nodes, poll, commit)
    return commit


def _rows(what: str, cost: FetchCost, times: int) -> Iterator[Row]:
    how = f"measured, mean of {times}"
    yield Row(f"{what}: requests", "", [cost.requests], how)
    yield Row("... sent by the server", "KB", [cost.sent_bytes / 1e3], f"{how}, HTTP")
    yield Row("... received by it", "KB", [cost.received_bytes / 1e3], f"{how}, HTTP")
    yield Row("... CPU of the server", "ms", [cost.server_ms], f"{how}, git http-backend")
    yield Row("... CPU of the agent's machine", "ms", [cost.agent_ms], f"{how}, git and ours")


def _of_a_fleet(nodes: int, poll: FetchCost, commit: FetchCost) -> Iterator[Row]:
    what = f"git, {nodes:,} nodes"
    asked = simulate(nodes, poll_pause_s, _LASTS_S)
    mean, peak = asked.mean(_STEADY_S, _LASTS_S), asked.peak(_STEADY_S, _LASTS_S)
    yield Row(f"{what}: polls a second", "", [mean], f"simulated, every {INTERVAL_S:g} s")
    yield Row("... in the busiest second", "", [peak], "simulated, 8 minutes")
    yield Row("... requests a second", "", [mean * poll.requests], "polls x requests")
    yield Row("... sent", "KB/s", [mean * poll.sent_bytes / 1e3], "polls x bytes")
    yield Row("... cores of the server", "", [mean * poll.server_ms / 1e3], "polls x CPU")
    waits = asked.after(_LASTS_S / 2)
    seconds = range(int(waits[-1]) + 1)
    busiest = max(sum(s <= wait < s + 1 for wait in waits) for s in seconds)
    yield Row(f"{what}, a push: half have it after", "s", [waits[nodes // 2]], "simulated")
    yield Row("... all have it after", "s", [waits[-1]], "simulated")
    yield Row("... fetches in the busiest second", "", [busiest], "simulated")
    yield Row("... requests in that second", "", [busiest * commit.requests], "x requests")
    yield Row("... cores in that second", "", [busiest * commit.server_ms / 1e3], "x CPU")
    yield Row("... sent in all", "MB", [nodes * commit.sent_bytes / 1e6], "nodes x bytes")
    for spread_s in (1.0, _BOOT_S):
        begun = simulate(nodes, poll_pause_s, 2 * INTERVAL_S, spread_s)
        peak = begun.peak(0, 2 * INTERVAL_S)
        how = "simulated: the first poll is at once"
        yield Row(f"{what}, all restart within {spread_s:g} s: peak polls", "", [peak], how)
    all_at_once = nodes * commit.server_ms / 1e3
    yield Row(f"{what}, all fetch at once: CPU of the server", "s", [all_at_once], "nodes x CPU")


def _measured(folder: Path) -> tuple[FetchCost, FetchCost, FetchCost]:
    """A first fetch, a poll without news, and a fetch of one commit that changed one file."""
    repo = Repo.create(folder)
    generate(repo.work, SERVICES)
    head = repo.commit()
    pulls = "".join(f"{head} refs/pull/{n}/head\n" for n in range(PULLS))
    (repo.remote / "packed-refs").write_text(pulls)
    # A process of its own that is not waited for: our children's CPU is the server's alone.
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as agent,
        git_server(folder) as server,
    ):
        url = server.url(repo.remote.name)
        agent.submit(_fetch, url, folder / "warm", 2).result()
        clones = [folder / f"clone-{n}" for n in range(CLONES)]
        clone = _cost(server, lambda: [agent.submit(_fetch, url, c, 1) for c in clones], CLONES)
        cache = clones[0]
        poll = _cost(server, lambda: [agent.submit(_fetch, url, cache, POLLS)], POLLS)
        costs = []
        for n in range(COMMITS):
            path = repo.work / "services" / f"service-{n:05}.yaml"
            path.write_text(path.read_text().replace("contextSize: ", "contextSize: 1"))
            repo.commit()
            costs.append(_cost(server, lambda: [agent.submit(_fetch, url, cache, 1)], 1))
    return clone, poll, _mean(costs)


def _fetch(url: str, cache: Path, times: int) -> float:
    """In the agent's process. Milliseconds of CPU, git's among them."""
    source = GitSource(url, cache_dir=cache)
    before = _cpu_s(resource.RUSAGE_SELF) + _cpu_s(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        source.fetch()
    after = _cpu_s(resource.RUSAGE_SELF) + _cpu_s(resource.RUSAGE_CHILDREN)
    return (after - before) * 1e3


def _cost(server: GitServer, begin: Callable[[], list[Future[float]]], times: int) -> FetchCost:
    asked, sent, received = len(server.asked), server.sent_bytes, server.received_bytes
    cpu = _cpu_s(resource.RUSAGE_CHILDREN)
    agent_ms = sum(each.result() for each in begin())
    spent_ms = (_cpu_s(resource.RUSAGE_CHILDREN) - cpu) * 1e3
    return FetchCost(
        (len(server.asked) - asked) / times,
        (server.sent_bytes - sent) / times,
        (server.received_bytes - received) / times,
        spent_ms / times,
        agent_ms / times,
    )


def _mean(costs: Sequence[FetchCost]) -> FetchCost:
    def of(read: Callable[[FetchCost], float]) -> float:
        return sum(map(read, costs)) / len(costs)

    return FetchCost(
        of(lambda c: c.requests),
        of(lambda c: c.sent_bytes),
        of(lambda c: c.received_bytes),
        of(lambda c: c.server_ms),
        of(lambda c: c.agent_ms),
    )


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
