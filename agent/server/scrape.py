"""Read metrics of one engine, in the Prometheus text format."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from agent.process.exposition import total
from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange

_MOST_BYTES = 1 << 20


def read_counter(
    url: str, metric: str, *, key: str | None = None, timeout_s: float = 2.0
) -> float | None:
    """The sum of the counter's series; None if there is none, or no response in time. `key` is the
    engine's API key."""
    return read_totals(url, (metric,), key=key, timeout_s=timeout_s)[0]


def read_totals(
    url: str, metrics: Sequence[str | None], *, key: str | None = None, timeout_s: float = 2.0
) -> list[float | None]:
    """The same of several, which are read at once; None also in the place of no metric."""
    unknown: list[float | None] = [None] * len(metrics)
    try:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        deadline = time.monotonic() + timeout_s
        request = HttpRequest("GET", urlsplit(url), headers)
        reply = exchange(request, HttpPolicy(_MOST_BYTES), deadline=deadline)
    except (OSError, http.client.HTTPException):
        return unknown
    if reply.status != 200:
        return unknown
    text = reply.body.decode(errors="replace")
    return [None if metric is None else total(text, metric) for metric in metrics]
