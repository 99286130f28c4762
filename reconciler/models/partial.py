"""A file that is still arriving: its bytes so far, their sha256, and how to go on after a stop."""

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

from reconciler.errors import DownloadFailed

Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the total (None: unknown). May raise to refuse the rest."""

CHUNK = 1 << 20
# What a power cut or SIGKILL may cost: whichever comes first. An fsync so often costs nothing
# measurable.
_CHECKPOINT = 64 << 20
_CHECKPOINT_S = 2.0


class Partial:
    """Use as a context manager: leaving it makes what has arrived durable for the next attempt.

    Beside the file stands a note with the number of bytes that are surely on disk, so that after a
    power cut nothing but these counts (a file may otherwise end in a hole of zeros), and with what
    the other side said of its file (`validator`, `total`), so that two versions never mix.
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
        self.resumed = False  # bytes of an earlier attempt are part of the file
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
            except OSError as failure:  # a full disk: the buffer's last bytes found no place
                if error is None:
                    raise self._full_or_broken(failure) from failure

    def begin(self, validator: str | None, total: int | None) -> None:
        """Start over from the first byte, and remember what the other side says of its file."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.received, self._sure, self.resumed = 0, 0, False
        self.resume(validator, total)

    def resume(self, validator: str | None, total: int | None) -> None:
        """Go on after the bytes that are here."""
        self.validator, self.total = validator, total
        self._write_note()
        self.check()
        self.progress(self.received, total)

    def write(self, chunk: bytes) -> None:
        """Append. Raises DownloadFailed when cancelled, or when the disk takes no more."""
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
        """Raises DownloadFailed when somebody asked to stop."""
        if self.cancelled.is_set():
            raise DownloadFailed("stopped; what has arrived is kept for the next attempt")

    @property
    def sha256(self) -> str:
        """Hex digest of all bytes that have arrived."""
        return self._hash.hexdigest()

    def _read_note(self) -> None:
        try:
            note = json.loads(self._note.read_bytes())
        except (OSError, ValueError):  # absent, or torn by a crash
            note = None
        match note:
            case {
                "sure": int(sure),
                "validator": str() | None as validator,
                "total": int() | None as total,
            } if 0 <= sure <= os.fstat(self._file.fileno()).st_size:
                self._sure, self.validator, self.total = sure, validator, total
            case _:
                self._sure = 0
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
        temporary = self._note.with_name(self._note.name + ".tmp")
        try:
            with temporary.open("w") as file:
                json.dump(note, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._note)
        except OSError as error:
            raise self._full_or_broken(error) from error

    def _full_or_broken(self, error: OSError) -> DownloadFailed:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return DownloadFailed(f"no space left for {self.path}: free some, it goes on from here")
        return DownloadFailed(f"cannot write {self.path}: {error.strerror or error}")
