"""The minimum rate of a transfer. Otherwise a host that sends one byte a minute would block a
download for ever, since no single read of it times out."""

from __future__ import annotations

import io
from collections.abc import Callable

from reconciler.http.connect import BoundedStream

# what has arrived is kept: the next attempt resumes, after other downloads
LEAST_BYTES_PER_S = 10 << 10
WINDOW_S = 60.0


class TooSlow(OSError):
    """Too few bytes arrived for too long."""


class TransferPace:
    """Counts bytes and the time spent waiting for them: our own processing does not count."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s, self._waited_s, self._bytes = window_s, 0.0, 0

    def count(self, bytes_: int, waited_s: float) -> None:
        """Raises TooSlow at the end of a window in which too few bytes arrived."""
        self._bytes += bytes_
        self._waited_s += waited_s
        if self._waited_s < self._window_s:
            return
        if self._bytes < LEAST_BYTES_PER_S * self._waited_s:
            raise TooSlow(
                f"only {self._bytes} bytes in {self._waited_s:.0f} s: less than"
                f" {LEAST_BYTES_PER_S >> 10} KiB a second is too slow"
            )
        self._waited_s, self._bytes = 0.0, 0


class PacedStream(BoundedStream):
    """A connection's bytes, which arrive fast enough or end in TooSlow. While `first_by` is set, a
    read after that time of the clock is a TimeoutError, however much arrived before."""

    def __init__(self, stream: io.RawIOBase, clock: Callable[[], float], first_by: float) -> None:
        self._stream, self._clock, self._pace = stream, clock, TransferPace()
        self.first_by: float | None = first_by

    def fileno(self) -> int:
        return self._stream.fileno()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # narrower, as io has it
        started = self._clock()
        if self.first_by is not None and started >= self.first_by:
            raise TimeoutError
        count = self._stream.readinto(buffer) or 0
        self._pace.count(count, self._clock() - started)
        return int(count)

    def close(self) -> None:
        self._stream.close()
        super().close()
