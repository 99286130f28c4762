"""One scrape of a program of this project over plain HTTP, bounded, and what a gauge in it says."""

from __future__ import annotations

import http.client
import logging
import re
import time
from urllib.parse import urlsplit

from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange

_log = logging.getLogger(__name__)


def scrape(url: str, *, within_s: float, most_bytes: int) -> str | None:
    """What is answered there with 200; None: nothing that can be read."""
    deadline = time.monotonic() + within_s
    try:
        request = HttpRequest("GET", urlsplit(url), {})
        reply = exchange(request, HttpPolicy(most_bytes), deadline=deadline)
    except (OSError, ValueError, http.client.HTTPException) as error:
        _log.debug("%s: %s", url, error)
        return None
    return reply.body.decode(errors="replace") if reply.status == 200 else None


def figures(exposition: str, name: str) -> tuple[float, ...]:
    """The figure of each series of a metric, by Prometheus' text format: NaN and infinity among
    them. What is no number is left out."""
    values = []
    for text in re.findall(
        rf"^{re.escape(name)}(?:\{{.*\}})?[ \t]+(\S+)", exposition, re.MULTILINE
    ):
        try:
            values.append(float(text))
        except ValueError:
            continue
    return tuple(values)
