"""Read one counter of one engine, from what it says in the words of Prometheus."""

from __future__ import annotations

import http.client
import math
import re
import time
from urllib.parse import urlsplit

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
    return counter(reply.body.decode(errors="replace"), metric) if reply.status == 200 else None


def counter(text: str, metric: str) -> float | None:
    """The sum over all series of a metric in an exposition; None where there is none."""
    # Only the lines asked for: to parse all of fifty answers would cost more than to get them.
    lines = re.findall(rf"(?m)^{re.escape(metric)}(?:\{{.*\}})?[ \t]+(\S+)", text)
    try:
        values = [float(value) for value in lines]
    except ValueError:
        return None
    total = sum(values)
    return total if values and math.isfinite(total) and total >= 0 else None
