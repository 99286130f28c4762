"""What is on its way, on the live line of a terminal: downloads, and the headers of models."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from reconciler.api.quantity import show_bytes
from reconciler.cli.console import Screen
from reconciler.console.edge import width_of
from reconciler.models.sources import hosts_of
from reconciler.report.spans import span
from reconciler.report.terminal import Tone, printable
from reconciler.worker import Worker

_BAR_WIDTH = 28
_GAP = "   "
_NARROWEST, _WIDEST = 36, 90  # of one download, in columns
_LEAST_BAR = 8  # with its brackets and blanks
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
        self.arrives = False  # else it is only read
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

    def close(self, *, interrupted: bool = False) -> None:
        """Whoever interrupted it is told what stays of what has not come whole."""
        self._worker.close()
        self._screen.bar("")
        names = sorted(printable(each.model) for each in self._coming.values() if each.arrives)
        if interrupted and names:
            text = "what was fetched is kept, and the next run goes on from there"
            self._screen.say(f"{', '.join(names)}  {text}")

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
                how = how if ended.arrives else "read where it lies"
                text = f"{how}, {show_bytes(size)} in {span(now - ended.began)}"
                self._screen.say(f"{printable(ended.model)}  {text}", Tone.GOOD)
        for download in moving:
            coming = self._coming.setdefault(download.source, _Coming(download.model, now))
            coming.see(now, download.received_bytes)
            coming.arrives |= download.state == "downloading"
        columns = width_of(sys.stderr) or 80
        rates = {source: coming.bytes_a_second for source, coming in self._coming.items()}
        self._screen.bar(progress_line(moving, columns, rates) if self._screen.live else "")


def asked_bar(done: int, total: int) -> str:
    """How many model headers have been read; nothing once all are."""
    if done == total:
        return ""
    filled = _BAR_WIDTH * done // total
    return f"model headers [{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {done} of {total}"


def progress_line(
    downloads: Sequence[DownloadProgress], columns: int, rates: Mapping[str, float] = _NO_RATES
) -> str:
    """All that are on their way, each with its share of a line. `rates`: bytes a second, by
    source."""
    if not downloads:
        return ""
    each = (columns - 1 - len(_GAP) * (len(downloads) - 1)) // len(downloads)
    if each >= _NARROWEST:
        width = min(each, _WIDEST)
        return _GAP.join(_bar(d, width, rates.get(d.source, 0.0)) for d in downloads)
    got = sum(download.received_bytes for download in downloads)
    totals = [download.total_bytes for download in downloads]
    of = "" if None in totals else f" of {show_bytes(sum(filter(None, totals)))}"
    return f"{len(downloads)} downloads, {show_bytes(got)}{of}"


def _bar(download: DownloadProgress, width: int, bytes_a_second: float) -> str:
    """How full it is, how fast that goes and how long it will take; what has no room is left out,
    the least needed first, and the end of a long name."""
    name, got, total = printable(download.model), download.received_bytes, download.total_bytes
    rate = f"{show_bytes(int(bytes_a_second))}/s" if bytes_a_second else ""
    if not total:
        return ", ".join(filter(None, (f"{name} {show_bytes(got)}", rate)))[:width]
    from tqdm.std import tqdm

    share = f"{min(100, 100 * got // total)} %"
    left = span((total - got) / bytes_a_second) if rate and got < total else ""
    whole = f"{share}  {show_bytes(got)} of {show_bytes(total)}"
    last = f"{left} left" if left else ""
    forms = [", ".join(filter(None, (first, rate, last))) for first in (whole, share)]
    forms.append(" ".join(filter(None, (share, rate, left))))
    text = next((t for t in forms if len(name) + len(t) + _LEAST_BAR <= width), forms[-1])
    shown = name[: max(8, width - len(text) - _LEAST_BAR)].replace("{", "{{").replace("}", "}}")
    form = f"{shown} [{{bar}}] {text}"
    return str(tqdm.format_meter(got, total, 0, ncols=width, bar_format=form, ascii="-#"))
