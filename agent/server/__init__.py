"""What a node says of itself over HTTP, served in a thread beside the loop.

Nothing here can hold up the loop or a model: every answer is made from memory, and where the port
cannot be had the agent goes on without.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.node import Node
    from agent.server.board import StateBoard
    from agent.server.serving import Serving
    from reconciler.loop import Wake

DEFAULT_PORT = 9090
SERVED_FILE = "server.json"


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where to listen. `port` 0: a free one. Off loopback, TLS and a token or a client certificate
    (by `client_ca_file`) are demanded; `host_ip` is an address of this machine for its own."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    client_ca_file: Path | None = None
    host_ip: str | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """Where the agent listens; `problem` says why it does not."""

    url: str | None = None
    cert_sha256: str | None = None
    problem: str | None = None


def served(root: Path) -> Served | None:
    """What the agent of a state directory says of its server; None where it serves nothing. A
    killed agent leaves it behind: ask who holds the lock, too."""
    try:
        said = json.loads((root / SERVED_FILE).read_bytes())
        return Served(said.get("url"), said.get("certSha256"), said.get("problem"))
    except (OSError, ValueError, AttributeError):
        return None


@contextlib.contextmanager
def serve_state(
    node: Node, board: StateBoard, listen: ListenSettings, wake: Wake
) -> Iterator[Serving]:
    """Answer for a node meanwhile. `board` is the reporter that its loop was given."""
    from agent.server.measure import sampler
    from agent.server.serving import Serving

    board.processes = node.agent.processes
    node.loop.passed = board.passed
    serving = Serving(node, board, listen, wake, sampler=sampler(node, board))
    serving.start()
    try:
        yield serving
    finally:
        serving.close()
