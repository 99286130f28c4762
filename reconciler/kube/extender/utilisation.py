"""How busy the GPUs of each node are, read from the labelers' metrics. Unknown after a minute."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from reconciler.agents.scrape import figures, scrape
from reconciler.api.nodelabels import GPU_UTILISATION
from reconciler.worker import Worker

EVERY_S = 15.0
LASTS_S = 60.0
_TIMEOUT_S = 2.0
_AT_ONCE = 16
_MOST_BYTES = 1 << 20


def utilisation_in(exposition: str) -> float | None:
    """The mean of a node's GPUs, 0 to 1; None: no GPU tells it."""
    shares = [share for share in figures(exposition, GPU_UTILISATION) if 0 <= share <= 1]
    return statistics.fmean(shares) if shares else None


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
        self._clock = clock
        self._readings: Mapping[str, tuple[float, float]] = {}  # node -> (when, how much)
        self._worker = Worker(
            *("utilisation", self.read_all),
            every_s=every_s,
            end_s=_TIMEOUT_S + 1.0,
            what="round of utilisation: scores go on without",
        )

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.close()

    def now(self) -> dict[str, float]:
        """The utilisation of the nodes whose labeler answered within the last minute."""
        since = self._clock() - LASTS_S
        return {node: value for node, (at, value) in self._readings.items() if at >= since}

    def read_all(self) -> None:
        labelers = self._labelers()
        with ThreadPoolExecutor(_AT_ONCE, "utilisation") as pool:
            values = dict(zip(labelers, pool.map(_read, labelers.values()), strict=True))
        at = self._clock()
        news = {node: (at, value) for node, value in values.items() if value is not None}
        kept = {node: reading for node, reading in self._readings.items() if node in labelers}
        self._readings = {**kept, **news}


def _read(url: str) -> float | None:
    body = scrape(url, within_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
    return None if body is None else utilisation_in(body)
