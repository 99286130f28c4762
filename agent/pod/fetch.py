"""Fetch one model into a volume that pods share, verify it, and publish it there.

A Job runs this. It resumes where an earlier one was killed, waits while another fetches the same
model, and retries by itself with growing pauses: restarting the pod costs more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from agent.models.damage import damage_of
from agent.models.downloads import error_of
from agent.models.store import Download, DownloadPhase, ModelStore, StoredModel
from agent.pod.download_lock import DownloadLock
from agent.pod.ready import publish
from reconciler.api.errors import DownloadFailed
from reconciler.api.quantity import show_bytes
from reconciler.fleet.model_file import ModelFile
from reconciler.models.ready import ready_key
from reconciler.models.scheme import FetchContext

_TURNS = "turns"
_LOOK_EVERY_S = 0.1
_TELL_EVERY_S = 10.0
_ADVANCE = 1 << 20  # bytes more than ever before: the line is bad, but it moves


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """When to give up: after so many attempts in a row without progress, or so many seconds."""

    attempts: int = 10
    give_up_after_s: float = 3600.0


@dataclass(slots=True)
class FetchJob:
    """One model to fetch. `tell` takes a line for the log."""

    store: ModelStore
    model: ModelFile
    context: FetchContext
    tell: Callable[[str], None]
    patience: RetryLimits = RetryLimits()
    stop: Event = field(default_factory=Event)

    _tries: int = 0
    _furthest: int = 0
    _failed_at: float | None = None

    def run(self) -> Path:
        """Returns the path for the engine. Raises ModelError if the model cannot be fetched, or not
        in time, or if it was stopped; what has arrived is kept."""
        began = time.monotonic()
        stored = self.store.lookup(self.model) or self._stored_in_turn(began)
        place = publish(self.store.root, self.model, stored)
        took = time.monotonic() - began
        size = show_bytes(stored.size_bytes)
        self.tell(f"ready: {place} ({size}, sha256 {stored.digest[:12]}) after {took:.1f} s")
        return place

    def _stored_in_turn(self, began: float) -> StoredModel:
        folder = self.store.root / _TURNS
        with DownloadLock(folder, ready_key(self.model), self.tell, self.stop) as lock:
            stored = self._stored(began, lock)
            if lock.taken_over and (damage := damage_of(stored)):
                # Who had it may have written on for a moment, into the same files.
                self.store.contents.set_aside(stored.digest)
                raise DownloadFailed(f"{self.model.source}: {damage}; set aside, try again")
            return stored

    def _stored(self, began: float, lock: DownloadLock) -> StoredModel:
        if (stored := self.store.lookup(self.model)) is not None:
            return stored
        self.tell(f"brings {self.model.source}")
        line = _Line(self.tell)
        while (stored := self.store.lookup(self.model)) is None:
            self.store.ensure(self.model, self.context)
            download = self.store.download_of(self.model)
            if download is not None:
                self._count_failure(download)
                line.follow(download)
            if time.monotonic() - began >= self.patience.give_up_after_s:
                why = f": {download.message}" if download and download.message else ""
                given = self.patience.give_up_after_s
                raise DownloadFailed(f"{self.model.source}: not here after {given:g} s{why}")
            if lock.lost():
                raise DownloadFailed(f"{self.model.source}: another process has taken over")
            if self.stop.wait(_LOOK_EVERY_S):
                raise DownloadFailed("stopped; what has arrived is kept for the next attempt")
        return stored

    def _count_failure(self, download: Download) -> None:
        """Count failures; give up if another attempt cannot help."""
        if download.state is not DownloadPhase.FAILED or download.since == self._failed_at:
            return
        self._failed_at = download.since
        if download.received_bytes >= self._furthest + _ADVANCE:
            self._tries = 0
        self._furthest = max(self._furthest, download.received_bytes)
        self._tries += 1
        error = error_of(download.reason, f"{self.model.source}: {download.message}")
        if not isinstance(error, DownloadFailed) or self._tries >= self.patience.attempts:
            raise error
        pause = download.retry_in_s or 0.0
        self.tell(
            f"attempt {self._tries} of {self.patience.attempts}: {download.message};"
            f" again in {pause:.0f} s"
        )


class _Line:
    """Says how far a download is: every ten seconds, and when it begins something else."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._printed: tuple[str, str] | None = None
        self._since = time.monotonic()
        self._received = 0

    def follow(self, download: Download) -> None:
        if download.state in (DownloadPhase.FAILED, DownloadPhase.DONE):
            return  # reported elsewhere
        now, doing = time.monotonic(), (str(download.state), download.message)
        if doing == self._printed and now - self._since < _TELL_EVERY_S:
            return
        speed = (download.received_bytes - self._received) / max(now - self._since, 0.001)
        moving = doing == self._printed and speed > 0
        text = download.message or _amount(download)
        self._tell(f"{download.state}: {text}" + (f", {show_bytes(speed)}/s" if moving else ""))
        self._printed, self._since, self._received = doing, now, download.received_bytes


def _amount(download: Download) -> str:
    got, total = download.received_bytes, download.total_bytes
    if not total:
        return show_bytes(got)
    return f"{show_bytes(got)} of {show_bytes(total)} ({100 * got // total} %)"
