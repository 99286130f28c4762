"""The measurements for the HTTP API, taken beside the loop: wired here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.machine.pressure import PressureWatch
from agent.process.rebuilt import models_of
from agent.server.sampler import Sampler, Shown, counters
from agent.state.benchmarks import ResultsWatch
from reconciler.api.model import public_source
from reconciler.api.nodestate import StoredState

if TYPE_CHECKING:
    from agent.node.node import Node
    from agent.server.board import StateBoard


def sampler(node: Node, board: StateBoard) -> Sampler:
    """The sampler of this node: its engines, its store, its memory."""
    pressure = PressureWatch()
    benchmarks = ResultsWatch(node.agent.state.root)

    def sample() -> Shown:
        stored = (
            StoredState(
                sha256=entry.model.digest,
                sources=tuple(map(public_source, entry.sources)),
                size_bytes=entry.model.size_bytes,
            )
            for entry in node.agent.store.inventory()
        )
        return Shown(tuple(stored), pressure.read(), benchmarks.read(), loads=_loads(node))

    def publish() -> None:
        board.speeds = made.shown.speeds
        board.pump()

    made = Sampler(
        lambda: counters(node.agent.processes.snapshot()),
        sample,
        publish,
        every_s=node.settings.intervals.sample_s,
    )
    return made


def _loads(node: Node) -> dict[str, float]:
    """What it took to bring the models of what runs here."""
    store, running = node.agent.store, node.agent.processes.snapshot()
    models = {model for state in running for model in models_of(state.launch)}
    brought = {model.name: store.lookup(model) for model in models}
    return {n: it.took_s for n, it in brought.items() if it is not None and it.took_s is not None}
