"""A file that is being downloaded: its bytes so far, their sha256, and how to resume after a
stop."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from reconciler.api.errors import DiskFull, DownloadFailed
from reconciler.atomic import atomic_write
from reconciler.ownfile import read_or_move

Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the total (None: unknown). May raise to stop the download."""

CHUNK = 1 << 20
# What a power cut or SIGKILL may cost, whichever comes first. At this interval fsync has no
# measurable cost.
_CHECKPOINT = 64 << 20
_CHECKPOINT_S = 2.0


class Partial:
    """A context manager: leaving it makes the bytes received durable for the next attempt.

    A note beside the file has the number of bytes that are certainly on disk, so that only these
    count after a power cut (a file may otherwise end in a hole of zeros), and what the server
    states about its file (`validator`, `total`), so that two versions never mix.
    """

    def __init__(
        self,
        path: Path,
        progress: Progress = lambda received, total: None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self.path = path
        self.progress = progress
        self.cancelled = cancelled or threading.Event()
        self.validator: str | None = None
        self.total: int | None = None
        self.received = 0
        self.resumed = False  # the file contains bytes of an earlier attempt
        self._note = path.with_name(path.name + ".json")
        self._sure = 0
        self._sure_since = time.monotonic()
        self._hash = hashlib.sha256()

    def __enter__(self) -> Self:
        self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            self._read_note()
            self._hash_what_is_there()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._checkpoint()
        except OSError as failure:
            if error is None:
                raise self._full_or_broken(failure) from failure
        finally:
            try:
                self._file.close()
            except OSError as failure:  # a full disk: the buffer's last bytes could not be written
                if error is None:
                    raise self._full_or_broken(failure) from failure

    def begin(self, validator: str | None, total: int | None) -> None:
        """Start over from the first byte, and note what the server states about its file."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.received, self._sure, self.resumed = 0, 0, False
        self.resume(validator, total)

    def resume(self, validator: str | None, total: int | None) -> None:
        """Continue after the bytes that are here."""
        self.validator, self.total = validator, total
        self._write_note()
        self.check()
        self.progress(self.received, total)

    def write(self, chunk: bytes) -> None:
        """Append. Raises DownloadFailed when cancelled, or when the disk is full."""
        self.check()
        try:
            self._file.write(chunk)
        except OSError as error:
            raise self._full_or_broken(error) from error
        self._hash.update(chunk)
        self.received += len(chunk)
        fresh = self.received - self._sure
        if fresh >= _CHECKPOINT or time.monotonic() >= self._sure_since + _CHECKPOINT_S:
            self._checkpoint()
        self.progress(self.received, self.total)

    def check(self) -> None:
        """Raises DownloadFailed if the download was cancelled."""
        if self.cancelled.is_set():
            raise DownloadFailed("stopped; what has arrived is kept for the next attempt")

    @property
    def sha256(self) -> str:
        """Hex digest of all bytes that have arrived."""
        return self._hash.hexdigest()

    def _read_note(self) -> None:
        note = read_or_move(self._note, _parse_note, lost="the download starts over")
        self._sure = 0
        if note is not None and note[0] <= os.fstat(self._file.fileno()).st_size:
            self._sure, self.validator, self.total = note
        self._file.truncate(self._sure)

    def _hash_what_is_there(self) -> None:
        while chunk := self._file.read(CHUNK):
            self.check()
            self._hash.update(chunk)
            self.received += len(chunk)
        self.resumed = self.received > 0

    def _checkpoint(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._sure, self._sure_since = self.received, time.monotonic()
        self._write_note()

    def _write_note(self) -> None:
        note = {"sure": self._sure, "validator": self.validator, "total": self.total}
        try:
            atomic_write(self._note, json.dumps(note).encode())
        except OSError as error:
            raise self._full_or_broken(error) from error

    def _full_or_broken(self, error: OSError) -> DownloadFailed:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return DiskFull(f"no space left for {self.path}: free some, it goes on from here")
        return DownloadFailed(f"cannot write {self.path}: {error.strerror or error}")


def _parse_note(note: object) -> tuple[int, str | None, int | None]:
    match note:
        case {
            "sure": int(sure),
            "validator": str() | None as validator,
            "total": int() | None as total,
        } if sure >= 0:
            return sure, validator, total
    raise ValueError("it is no note of a download")
