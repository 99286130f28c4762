"""What is on its way, on the live line of a terminal: downloads, and the headers of models."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from reconciler.api.quantity import show_bytes
from reconciler.cli.console import Screen
from reconciler.models.sources import hosts_of
from reconciler.report.spans import span
from reconciler.report.terminal import Tone, printable
from reconciler.worker import Worker

_BAR_WIDTH = 28
_BAR_WIDTHS = (_BAR_WIDTH, 10, 0)  # the narrower, the more of them fit a line
_BAR_EVERY_S = 0.2
_MOVING = ("downloading", "verifying")
_RATE_OVER_S = 10.0  # as short as a person waits for a rate to follow, as long as it is steady
_NO_RATES: Mapping[str, float] = MappingProxyType({})


class DownloadProgress(Protocol):
    """What a progress bar shows of one model on its way."""

    @property
    def model(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int | None: ...
    @property
    def state(self) -> str: ...


class _Coming:
    """One download as it was seen coming: since when, and how much in the last seconds."""

    def __init__(self, model: str, began: float) -> None:
        self.model, self.began = model, began
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, received_bytes: int) -> None:
        self._seen.append((now, received_bytes))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()

    @property
    def bytes_a_second(self) -> float:
        """0 until there is something to tell, and while nothing comes."""
        (first, had), (last, has) = self._seen[0], self._seen[-1]
        return (has - had) / (last - first) if last - first >= 1.0 else 0.0


class ProgressLine:
    """Shows downloads on the screen's live line while they last, and says which are done."""

    def __init__(
        self,
        screen: Screen,
        downloads: Callable[[], Iterable[DownloadProgress]],
        stored_bytes: Callable[[str], int | None],
    ) -> None:
        """`stored_bytes`: how large what came from a source is; None: it is not here."""
        self._screen = screen
        self._downloads = downloads
        self._stored_bytes = stored_bytes
        self._coming: dict[str, _Coming] = {}  # by source
        self._worker = Worker(
            *("progress", lambda: self._look(time.monotonic())),
            every_s=_BAR_EVERY_S,
            first_s=_BAR_EVERY_S,
            end_s=None,
            what="line of progress",
        )
        self._worker.start()

    def close(self) -> None:
        self._worker.close()
        self._screen.bar("")

    @property
    def on_their_way(self) -> Collection[str]:
        """The sources of what was seen to come, and has not arrived."""
        return self._coming.keys()

    def _look(self, now: float) -> None:
        moving = [d for d in self._downloads() if d.state in _MOVING]
        for source in self._coming.keys() - {download.source for download in moving}:
            ended = self._coming.pop(source)
            if size := self._stored_bytes(source):
                how = "downloaded" if hosts_of(source) else "copied into the store"
                text = f"{how}, {show_bytes(size)} in {span(now - ended.began)}"
                self._screen.say(f"{printable(ended.model)}  {text}", Tone.GOOD)
        for download in moving:
            coming = self._coming.setdefault(download.source, _Coming(download.model, now))
            coming.see(now, download.received_bytes)
        columns = shutil.get_terminal_size().columns
        rates = {source: coming.bytes_a_second for source, coming in self._coming.items()}
        self._screen.bar(progress_line(moving, now, columns, rates) if self._screen.live else "")


def asked_bar(done: int, total: int) -> str:
    """How many model headers have been read; nothing once all are."""
    if done == total:
        return ""
    filled = _BAR_WIDTH * done // total
    return f"model headers [{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {done} of {total}"


def progress_line(
    downloads: Sequence[DownloadProgress],
    now: float,
    columns: int,
    rates: Mapping[str, float] = _NO_RATES,
) -> str:
    """All that are on their way, in the longest form that fits a line. `rates`: bytes a second, by
    source."""
    forms = ((_BAR_WIDTH, rates), *((width, {}) for width in _BAR_WIDTHS))
    for width, shown in forms:
        text = "   ".join(_bar(d, now, width, shown.get(d.source, 0.0)) for d in downloads)
        if len(text) < columns:
            return text
    got = sum(download.received_bytes for download in downloads)
    totals = [download.total_bytes for download in downloads]
    of = "" if None in totals else f" of {show_bytes(sum(filter(None, totals)))}"
    return f"{len(downloads)} downloads, {show_bytes(got)}{of}"


def _bar(download: DownloadProgress, now: float, width: int, bytes_a_second: float) -> str:
    """How full it is, or, where the size is not known, that it moves."""
    name, got, total = printable(download.model), download.received_bytes, download.total_bytes
    rate = f", {show_bytes(int(bytes_a_second))}/s" if bytes_a_second else ""
    if not total:
        at = int(now / _BAR_EVERY_S) % max(1, width - 3)
        bar = f"[{'-' * at}###{'-' * (width - 3 - at)}] " if width else ""
        return f"{name} {bar}{show_bytes(got)}{rate}"
    filled = min(width, width * got // total)
    bar = f"[{'#' * filled}{'-' * (width - filled)}] " if width else ""
    share = min(100, 100 * got // total)
    left = f", {span((total - got) / bytes_a_second)} left" if rate and got < total else ""
    return f"{name} {bar}{share} %  {show_bytes(got)} of {show_bytes(total)}{rate}{left}"
