"""Read a service's log, across rotations. Read-only, and from the end: what lies before costs
nothing."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from agent.process.logs import START_MARK
from agent.state.room import LOG_CAP_BYTES, LOG_KEEP

_REMEMBERED_BYTES = 1024  # enough to find the place again where reading ended
_BLOCK_BYTES = 64 << 10
_MOST_SOUGHT_BYTES = 64 << 20  # of what is there: without an agent no log is cut
_MOST_ADDED_BYTES = 1 << 20  # at once
_EVERY_S = 0.25


class LogReader:
    """The last lines of a log, then the lines added to it, without their newlines.

    The log may be rotated once between two calls of `more`.
    """

    def __init__(self, path: Path, cursor: str | None = None) -> None:
        """`cursor`: what an earlier reader had at its end. Raises ValueError: it is none."""
        self._path = path
        self._at = 0  # bytes of the file that were read
        self._last = b""  # the end of those bytes
        self._open_line = b""
        if cursor is not None:
            at, _, last = cursor.partition(".")
            try:
                self._at, self._last = int(at), base64.urlsafe_b64decode(last)
            except binascii.Error as error:
                raise ValueError("it is no cursor") from error

    def last(
        self, count: int, *, previous: bool = False, most_bytes: int = _MOST_SOUGHT_BYTES
    ) -> list[bytes]:
        """The last lines, from rotated files too if needed. `previous`: of the run before the last
        start of the process."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            self._at = file.seek(0, os.SEEK_END)
            self._last = _before(file, self._at)
        backwards = _backwards(self._path, self._at)
        self._open_line = next(backwards, b"")
        lines: list[bytes] = []
        is_sought, size = previous, 0
        for line in backwards if count else ():
            if is_sought:
                is_sought = not line.startswith(START_MARK)
                continue
            size += len(line)
            if size > most_bytes:
                break
            lines.append(line)
            if len(lines) == count or (previous and line.startswith(START_MARK)):
                break
        return lines[::-1]

    def more(self) -> list[bytes]:
        """Lines added since the last call, or the first of them where there are very many."""
        try:
            with self._path.open("rb") as file:
                data = b""
                begun = _before(file, self._at, len(self._last))
                if len(begun) < min(self._at, len(self._last)) or not self._last.endswith(begun):
                    # truncated: the copy has what we did not read
                    data, self._at = self._rest_of_copy(), 0
                file.seek(self._at)
                added = file.read(_MOST_ADDED_BYTES)
        except FileNotFoundError:
            return []
        self._at += len(added)
        self._last = (self._last + data + added)[-_REMEMBERED_BYTES:]
        *whole, self._open_line = (self._open_line + data + added).split(b"\n")
        return whole

    @property
    def open_line(self) -> bytes:
        """The beginning of a line that is not complete yet."""
        return self._open_line

    @property
    def cursor(self) -> str:
        """Where reading goes on behind the last whole line, for another reader."""
        at = self._at - len(self._open_line)
        last = b""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            last = _before(file, at)
        return f"{at}.{base64.urlsafe_b64encode(last).decode()}"

    def _rest_of_copy(self) -> bytes:
        try:
            with self._path.with_name(f"{self._path.name}.1").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 2 * LOG_CAP_BYTES))
                copy = file.read()
        except FileNotFoundError:
            return b""
        begin = copy.rfind(self._last)
        return b"" if begin < 0 else copy[begin + len(self._last) :]


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log of a service on this machine, for who shows it."""

    path: Path
    count: int
    previous: bool = False
    follow: bool = False

    def parts(self, ended: Event) -> Iterator[list[bytes]]:
        """Lines as they come; what is not a whole line yet only at the end."""
        reader = LogReader(self.path)
        yield reader.last(self.count, previous=self.previous)
        while self.follow and not self.previous and not ended.wait(_EVERY_S):
            while lines := reader.more():
                yield lines
        if reader.open_line and self.count and not self.previous:
            yield [reader.open_line]

    def close(self) -> None:
        """Nothing is open between two looks."""


def _before(file: BinaryIO, at: int, count: int = _REMEMBERED_BYTES) -> bytes:
    """The bytes before a place."""
    file.seek(max(0, at - count))
    return file.read(min(at, count))


def _backwards(path: Path, size: int) -> Iterator[bytes]:
    """What follows the last newline, and then each line, the last one first."""
    parts: list[bytes] = []  # of a line whose beginning is still to come, the last one first
    sought = 0
    for data in _blocks(path, size):
        first, *lines = data.split(b"\n")
        for line in reversed(lines):
            yield b"".join([line, *reversed(parts)])
            parts = []
        parts.append(first)
        sought += len(data)
        if sought > _MOST_SOUGHT_BYTES:
            return
    yield b"".join(reversed(parts))


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """The log and what was rotated away from it, from its end on."""
    older = (path.with_name(f"{path.name}.{number}") for number in range(1, LOG_KEEP + 1))
    for each in (path, *older):
        with contextlib.suppress(FileNotFoundError), each.open("rb") as file:
            at = size if each == path else file.seek(0, os.SEEK_END)
            while at > 0:
                begin = max(0, at - _BLOCK_BYTES)
                file.seek(begin)
                yield file.read(at - begin)
                at = begin
