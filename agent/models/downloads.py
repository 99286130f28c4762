"""Downloads beside the loop: a few at a time, shared, and retried with growing pauses.

Level-triggered like everything else: a failed download is retried when its pause is over *and* the
model is still requested. The download itself is the caller's `work`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.system.clock import Clock
from reconciler.api.errors import DiskFull, DownloadFailed, ModelCorrupt, ModelError, error_text
from reconciler.backoff import backoff_s
from reconciler.fleet.model_file import ModelFile
from reconciler.models.scheme import FetchContext

_log = logging.getLogger(__name__)

_SOON = (2.0, 300.0)  # first and longest pause in seconds: the network may be back any moment
_LATE = (60.0, 3600.0)  # a retry would most likely fail the same way
_REASONS: Mapping[type[ModelError], str] = {
    ModelError: "ModelUnavailable",
    DownloadFailed: "DownloadFailed",
    DiskFull: "DiskFull",
    ModelCorrupt: "ModelCorrupt",
}
# more bytes than ever before: a bad connection with progress, so pauses do not grow
_ADVANCE = 1 << 20


class DownloadPhase(StrEnum):
    WAITING = "waiting"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Download:
    """Progress of a download. `since` (epoch seconds) is when it entered its state; `reason` is the
    CamelCase reason of the last failure, empty before one."""

    source: str
    model: str
    received_bytes: int
    total_bytes: int | None
    state: DownloadPhase
    message: str
    since: float
    reason: str = ""
    retry_in_s: float | None = None


@dataclass(slots=True, eq=False)
class Transfer:
    """One download, as its worker thread sees it. Only the worker writes the first block, one field
    at a time, so that readers need no lock."""

    model: ModelFile
    context: FetchContext
    received: int = 0
    total: int | None = None
    message: str = ""
    reason: str = ""

    state: DownloadPhase = DownloadPhase.WAITING
    since: float = 0.0
    began: float | None = None  # monotonic: the first attempt of those that bring it
    cancelled: threading.Event = field(default_factory=threading.Event)
    failures: int = 0
    furthest: int = 0
    retry_at: float = 0.0  # monotonic

    def progress(self, received: int, total: int | None) -> None:
        if received != self.received:
            self.say("")
        self.received, self.total = received, total

    def say(self, message: str) -> None:
        """What it does, where that is no failure."""
        self.reason = ""  # first: a reader may come between the two
        self.message = message


class Downloads:
    """`work` runs on a thread of its own and raises ModelError; `changed` is called after it."""

    def __init__(
        self,
        work: Callable[[Transfer], None],
        *,
        clock: Clock,
        changed: Callable[[], None],
        max_running: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._work, self._changed, self._clock, self._jitter = work, changed, clock, jitter
        self._max_running = max_running
        self._lock = threading.Lock()
        self._transfers: dict[tuple[str, str | None], Transfer] = {}
        self._waiting: list[Transfer] = []
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def want(self, model: ModelFile, context: FetchContext) -> None:
        """Request a model: it is downloaded now, or when a failed attempt's pause is over. Never
        blocks."""
        with self._lock:
            transfer = self._transfers.get(_key(model))
            if transfer is None:
                transfer = self._transfers[_key(model)] = Transfer(model, context)
                self._enqueue(transfer)
            elif transfer.state is DownloadPhase.DONE or (
                transfer.state is DownloadPhase.FAILED
                # after a change of the policy (a host allowed, a mirror set) a retry makes sense at
                # once
                and (self._clock.monotonic() >= transfer.retry_at or context != transfer.context)
            ):
                transfer.context = context
                self._enqueue(transfer)

    def keep_only(self, models: Iterable[ModelFile]) -> None:
        """Stop and forget the downloads of all other models; partial files stay on disk."""
        kept = {_key(model) for model in models}
        with self._lock:
            for key in self._transfers.keys() - kept:
                transfer = self._transfers.pop(key)
                transfer.cancelled.set()
                if transfer in self._waiting:
                    self._waiting.remove(transfer)

    def models(self) -> tuple[ModelFile, ...]:
        """The models requested since the last keep_only."""
        with self._lock:
            return tuple(transfer.model for transfer in self._transfers.values())

    def snapshot(self) -> tuple[Download, ...]:
        """The progress of every download, in the order of the requests."""
        with self._lock:
            return tuple(self._show(transfer) for transfer in self._transfers.values())

    def of(self, model: ModelFile) -> Download | None:
        """The progress of one model's download; None if it was never requested."""
        with self._lock:
            transfer = self._transfers.get(_key(model))
            return self._show(transfer) if transfer else None

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop all and start no more. Partial files stay."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            threads = tuple(self._threads)
            for transfer in self._transfers.values():
                transfer.cancelled.set()
        deadline = time.monotonic() + timeout_s  # of real time, as threads measure it
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _enqueue(self, transfer: Transfer) -> None:
        if self._closed:
            return
        if transfer.began is None:
            transfer.began = self._clock.monotonic()
        # What was wrong last stays to be seen until something comes.
        self._enter(transfer, DownloadPhase.WAITING, transfer.message, transfer.reason)
        self._waiting.append(transfer)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._threads) < self._max_running:
            transfer = self._waiting.pop(0)
            self._enter(transfer, DownloadPhase.DOWNLOADING, transfer.message, transfer.reason)
            # daemon: a network that hangs in the system's resolver must not delay our exit
            thread = threading.Thread(
                target=self._run, args=(transfer,), name="download", daemon=True
            )
            self._threads.add(thread)
            thread.start()

    def _run(self, transfer: Transfer) -> None:
        error = self._attempt(transfer)
        with self._lock:
            self._threads.discard(threading.current_thread())
            if transfer.cancelled.is_set():
                pass  # forgotten, or closing: not a failure
            elif error is None:
                transfer.failures = 0
                transfer.began = None
                self._enter(transfer, DownloadPhase.DONE, "")
            else:
                self._fail(transfer, error)
            if not self._closed:
                self._start_waiting()
        self._changed()

    def _attempt(self, transfer: Transfer) -> ModelError | None:
        name = transfer.model.name
        _log.info("model %s: download starts", name)
        try:
            self._work(transfer)
        except ModelError as error:
            return error
        except OSError as error:
            return DownloadFailed(error_text(error))
        except Exception as error:  # noqa: BLE001  # a thread's edge: an error must be visible
            _log.exception("model %s: a bug in fleet-agent stopped the download", name)
            return ModelError(f"internal error: {type(error).__name__}: {error}")
        return None

    def _fail(self, transfer: Transfer, error: ModelError) -> None:
        advanced = transfer.received >= transfer.furthest + _ADVANCE
        soon = isinstance(error, DownloadFailed)
        transfer.furthest = max(transfer.furthest, transfer.received)
        transfer.failures = 1 if soon and advanced else transfer.failures + 1
        first, longest = _SOON if soon else _LATE
        pause = backoff_s(transfer.failures, first, longest)
        jitter = self._jitter()  # the nodes of a fleet must not retry all at once
        pause *= 0.5 + 0.5 * jitter
        if isinstance(error, DownloadFailed) and error.retry_after_s is not None:
            pause = max(pause, error.retry_after_s * (1 + 0.1 * jitter))
        transfer.retry_at = self._clock.monotonic() + pause
        self._enter(transfer, DownloadPhase.FAILED, str(error), reason_of(error))
        _log.warning(
            "model %s: %s (again in %.0f s)", transfer.model.name, str(error)[:1000], pause
        )

    def _enter(
        self, transfer: Transfer, state: DownloadPhase, message: str, reason: str = ""
    ) -> None:
        transfer.state, transfer.message, transfer.since = state, message, self._clock.time()
        transfer.reason = reason

    def _show(self, transfer: Transfer) -> Download:
        failed = transfer.state is DownloadPhase.FAILED
        return Download(
            source=transfer.model.source,
            model=transfer.model.name,
            received_bytes=transfer.received,
            total_bytes=transfer.total,
            state=transfer.state,
            message=transfer.message,
            since=transfer.since,
            reason=transfer.reason,
            retry_in_s=max(0.0, transfer.retry_at - self._clock.monotonic()) if failed else None,
        )


def reason_of(error: Exception) -> str:
    """The CamelCase reason of an error."""
    return (
        _REASONS.get(type(error), "DownloadFailed") if isinstance(error, ModelError) else "Failed"
    )


def error_of(reason: str, message: str) -> ModelError:
    """The error with this reason."""
    kinds = {word: kind for kind, word in _REASONS.items()}
    return kinds.get(reason, ModelError)(message)


def _key(model: ModelFile) -> tuple[str, str | None]:
    """Models with the same key share a download. Another digest or address is another download."""
    return (model.origin, model.sha256)
