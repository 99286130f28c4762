"""The measurements for the HTTP API, taken beside the loop: wired here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.machine.pressure import PressureWatch
from agent.server.sampler import Sampler, Shown
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

    def look() -> Shown:
        stored = (
            StoredState(
                sha256=entry.model.digest,
                sources=tuple(map(public_source, entry.sources)),
                size_bytes=entry.model.size_bytes,
            )
            for entry in node.agent.store.inventory()
        )
        return Shown(tuple(stored), pressure.look(), benchmarks.look())

    def told() -> None:
        board.speeds = made.shown.speeds
        board.pump()

    every_s = node.settings.intervals.sample_s
    made = Sampler(node.agent.processes.snapshot, look, told, every_s=every_s)
    return made
