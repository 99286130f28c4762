"""How long a look at a hundred agents takes: `python -m bench.central`.

They answer from this process. A fifth of them is dead: as on a machine that takes
connections and hangs.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.table import RUNS, Row, show, timed
from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes, AgentTimeouts
from tests.support.agents import FakeAgent
from tests.support.fleets import load_texts, node

AGENTS = 100
ALIVE_BUDGET_MS = 1_000
DEAD_BUDGET_MS = AgentTimeouts().each_s * 1e3 + ALIVE_BUDGET_MS


def rows() -> Iterator[Row]:
    for dead, budget_ms in ((0, ALIVE_BUDGET_MS), (AGENTS // 5, DEAD_BUDGET_MS)):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            urls = {f"n{i:02}": _alive(stack, f"n{i:02}") for i in range(AGENTS - dead)}
            urls |= {f"a{i:02}": _deaf(stack) for i in range(dead)}
            costs = [timed(_nodes(urls, folder).observe) for _ in range(RUNS)]
        walls, cpus = [wall for wall, _ in costs], [cpu for _, cpu in costs]
        what = f"look at {AGENTS} agents" + (f", {dead} of them dead" if dead else "")
        yield Row(what, "ms", walls, "AgentNodes.observe", budget_ms, cpus)


def _nodes(urls: Mapping[str, str], folder: Path) -> AgentNodes:
    """Of a reconciler that has just begun."""
    texts = [node(name, agent={"url": url}) for name, url in urls.items()]
    fleet = load_texts(*texts).fleet
    assert fleet is not None
    found = AgentNodes(AgentCredentials(), LastSeen(folder / "seen.json"))
    found.follow(fleet)
    return found


def _alive(stack: ExitStack, name: str) -> str:
    return stack.enter_context(FakeAgent(name)).url


def _deaf(stack: ExitStack) -> str:
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return f"http://127.0.0.1:{server.getsockname()[1]}"


if __name__ == "__main__":
    show(rows())
