"""Read one counter of one engine, from what it says in the words of Prometheus."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

from agent.server.exposition import total
from reconciler.agents.connection import Trust, exchange
from reconciler.errors import AgentError

_MOST_BYTES = 1 << 20


def read_counter(
    url: str, metric: str, *, key: str | None = None, timeout_s: float = 2.0
) -> float | None:
    """The sum of the counter's series; None where the answer has none, or none comes in time.
    `key` is what the engine asks of its clients."""
    try:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        deadline = time.monotonic() + timeout_s
        reply = exchange(
            "GET", urlsplit(url), headers, Trust(), deadline=deadline, most_bytes=_MOST_BYTES
        )
    except (AgentError, OSError, http.client.HTTPException):
        return None
    return total(reply.body.decode(errors="replace"), metric) if reply.status == 200 else None
