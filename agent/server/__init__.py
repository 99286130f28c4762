"""The HTTP API of a node, served in a thread beside the loop.

Nothing here can block the loop or a model: every response is made from memory, and if the port is
taken the agent runs without it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.ownfile import glance

if TYPE_CHECKING:
    from agent.node.node import Node
    from agent.server.board import StateBoard
    from agent.server.serving import StateServer
    from agent.state.directory import StateDir
    from reconciler.loop import Wake

DEFAULT_PORT = 9090
SERVED_FILE = "server.json"


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where to listen. `port` 0: a free one. Off loopback, TLS and a token or a client certificate
    (by `client_ca_file`) are required; `host_ip` is an address of this machine for its
    certificate."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    client_ca_file: Path | None = None
    host_ip: str | None = None


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where the agent listens, or the `problem` that prevents it."""

    url: str | None = None
    cert_sha256: str | None = None
    problem: str | None = None


def served(root: Path) -> ServerAddress | None:
    """The server address that an agent left in its state directory; None if it serves nothing. A
    killed agent leaves it behind: check the lock's holder, too."""
    return glance(root / SERVED_FILE, _address)


def page_url(state: StateDir) -> str | None:
    """Where a browser on this machine finds the page of the agent that has this directory; None:
    none serves it."""
    address = served(state.root) if state.holder() is not None else None
    if address is None or address.url is None:
        return None
    return re.sub(r"//(0\.0\.0\.0|\[::\])(?=:)", "//localhost", address.url)


def _address(content: Mapping[str, Any]) -> ServerAddress:
    values = [content.get(key) for key in ("url", "certSha256", "problem")]
    return ServerAddress(*(None if word is None else str(word) for word in values))


@contextlib.contextmanager
def serve_state(
    node: Node, board: StateBoard, listen: ListenSettings, wake: Wake
) -> Iterator[StateServer]:
    """Serve a node's state meanwhile. `board` listens to its loop."""
    from agent.server.measure import sampler
    from agent.server.serving import StateServer

    serving = StateServer(node, board, listen, wake, sampler=sampler(node, board))
    node.loop.listeners.add(serving)
    serving.start()
    try:
        yield serving
    finally:
        serving.close()
