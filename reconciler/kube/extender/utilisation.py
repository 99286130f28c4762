"""How busy the GPUs of each node are, read from the labelers' metrics. Unknown after a minute."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from reconciler.agents.scrape import figures, scrape
from reconciler.api.nodelabels import GPU_UTILISATION

EVERY_S = 15.0
LASTS_S = 60.0
_TIMEOUT_S = 2.0
_AT_ONCE = 16
_MOST_BYTES = 1 << 20

_log = logging.getLogger(__name__)


def utilisation_in(exposition: str) -> float | None:
    """The mean of a node's GPUs, 0 to 1; None: no GPU tells it."""
    found = [share for share in figures(exposition, GPU_UTILISATION) if 0 <= share <= 1]
    return statistics.fmean(found) if found else None


class UtilisationReader:
    """`labelers` are the URLs of their metrics, by node: asked each time."""

    def __init__(
        self,
        labelers: Callable[[], Mapping[str, str]],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._labelers = labelers
        self._every_s = every_s
        self._clock = clock
        self._found: Mapping[str, tuple[float, float]] = {}  # node -> (when, how much)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="utilisation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_TIMEOUT_S + 1.0)

    def now(self) -> dict[str, float]:
        """Of the nodes whose labeler answered within the last minute."""
        since = self._clock() - LASTS_S
        return {node: value for node, (at, value) in self._found.items() if at >= since}

    def read_all(self) -> None:
        labelers = self._labelers()
        with ThreadPoolExecutor(_AT_ONCE, "utilisation") as pool:
            values = dict(zip(labelers, pool.map(_read, labelers.values()), strict=True))
        at = self._clock()
        news = {node: (at, value) for node, value in values.items() if value is not None}
        kept = {node: found for node, found in self._found.items() if node in labelers}
        self._found = {**kept, **news}

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.read_all()
            except Exception:  # noqa: BLE001  a thread's edge: scores go on without
                _log.exception("a bug in this program: no utilisation was read")
            self._stopped.wait(self._every_s)


def _read(url: str) -> float | None:
    said = scrape(url, within_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    return None if said is None else utilisation_in(said)
