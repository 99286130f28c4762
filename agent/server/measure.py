"""What is measured for the answers beside the loop: wired here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent import heap
from agent.machine.pressure import PressureWatch
from agent.server.sampler import Sampler, Shown
from reconciler.api.nodestate import StoredState

if TYPE_CHECKING:
    from agent.node import Node
    from agent.server.board import StateBoard


def sampler(node: Node, board: StateBoard) -> Sampler:
    """Of this node: its engines, its store, its memory."""
    pressure = PressureWatch()

    def look() -> Shown:
        stored = (
            StoredState(
                sha256=entry.model.digest,
                sources=entry.sources,
                size_bytes=entry.model.size_bytes,
            )
            for entry in node.agent.store.inventory()
        )
        return Shown(tuple(stored), pressure.look())

    def after() -> None:
        board.pump()
        heap.trim()

    return Sampler(
        node.agent.processes.snapshot, look, after, every_s=node.settings.intervals.sample_s
    )
