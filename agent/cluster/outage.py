"""A cluster that does not respond: logged once, and retried with growing, random pauses.

Otherwise all clients of one API server would retry at the same moments for ever.
"""

from __future__ import annotations

import logging
import random
import threading

from reconciler.backoff import backoff_s

_FIRST_S = 1.0
_MOST_S = 60.0
_log = logging.getLogger(__name__)


class Outage:
    """State of one API server, shared by all threads that write to it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_out = False

    def answered(self) -> None:
        with self._lock:
            was, self._is_out = self._is_out, False
        if was:
            _log.info("cluster %s answers again", self._name)

    def failed(self, why: Exception) -> None:
        with self._lock:
            was, self._is_out = self._is_out, True
        if not was:
            _log.warning("%s; what runs here goes on, and it is asked again", why)


class Pauses:
    """The pause before each retry: full jitter, up to a minute."""

    def __init__(self) -> None:
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_s(self) -> float:
        """Seconds: a random time up to twice the last maximum."""
        self._failures += 1
        most = backoff_s(self._failures, _FIRST_S, _MOST_S)
        return random.uniform(0, most)  # noqa: S311 - not for secrets
