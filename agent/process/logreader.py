"""Read a service's log, across rotations. Read-only."""

from __future__ import annotations

import os
from pathlib import Path

from agent.process.logs import LOG_CAP_BYTES, LOG_KEEP

_REMEMBERED_BYTES = 4096  # enough to find the place again where reading ended


class LogReader:
    """The last lines of a log, then the lines added to it, without their newlines.

    The log may be rotated once between two calls of `more`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0  # bytes of the file that were read
        self._last = b""  # the end of those bytes
        self._open_line = b""

    def last(self, count: int) -> list[bytes]:
        """The last lines, from rotated files too if needed."""
        end = self._end_of(self._path)
        self._at, self._last = end[0], end[1][-_REMEMBERED_BYTES:]
        data = end[1]
        for number in range(1, LOG_KEEP + 1):
            if data.count(b"\n") > count:
                break
            data = self._end_of(self._path.with_name(f"{self._path.name}.{number}"))[1] + data
        lines = self._lines(data)
        return lines[max(0, len(lines) - count) :]

    def more(self) -> list[bytes]:
        """Lines added since the last call."""
        try:
            with self._path.open("rb") as file:
                data = b""
                # truncated: the copy has what we did not read
                if file.seek(0, os.SEEK_END) < self._at:
                    data, self._at = self._rest_of_copy(), 0
                file.seek(self._at)
                added = file.read()
        except FileNotFoundError:
            return []
        self._at += len(added)
        self._last = (self._last + data + added)[-_REMEMBERED_BYTES:]
        return self._lines(data + added)

    @property
    def open_line(self) -> bytes:
        """The beginning of a line that is not complete yet."""
        return self._open_line

    def _lines(self, data: bytes) -> list[bytes]:
        *whole, self._open_line = (self._open_line + data).split(b"\n")
        return whole

    def _rest_of_copy(self) -> bytes:
        _, copy = self._end_of(self._path.with_name(f"{self._path.name}.1"))
        _, separator, rest = copy.rpartition(self._last)
        return rest if separator else b""

    @staticmethod
    def _end_of(path: Path) -> tuple[int, bytes]:
        """Length of a file, and its end, up to twice the cap: without an agent no log is cut."""
        try:
            with path.open("rb") as file:
                begin = max(0, file.seek(0, os.SEEK_END) - 2 * LOG_CAP_BYTES)
                file.seek(begin)
                data = file.read()
        except FileNotFoundError:
            return 0, b""
        return begin + len(data), data.partition(b"\n")[2] if begin else data
