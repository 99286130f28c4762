"""What is measured for the answers beside the loop: wired here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.server.sampler import EVERY_S, Sampler, Shown

if TYPE_CHECKING:
    from agent.node import Node
    from agent.server.board import StateBoard


def sampler(node: Node, board: StateBoard, *, every_s: float = EVERY_S) -> Sampler:
    """Of this node: its engines, its store."""

    def look() -> Shown:
        return Shown()

    return Sampler(node.agent.processes.snapshot, look, board.pump, every_s=every_s)
