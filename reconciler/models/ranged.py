"""Read a remote file in pieces: skipped parts are never requested.

Windows begin small and double, so that a short header costs little and a long one few requests.
Whatever the server sends, we read no more than headers may have.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.api.errors import DownloadFailed

MAX_READ_BYTES = 64 << 20  # of a model; the largest headers in use have 20 MiB
_FIRST_WINDOW, _LARGEST_WINDOW = 256 << 10, 4 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, the file's size, and a value that changes with the file, if the server
    states one (an ETag). `packed_bytes` is the size of what it is unpacked from, if it is."""

    data: bytes
    size: int
    validator: str | None = None
    packed_bytes: int = 0


Pieces = Callable[[int, int], Piece]
"""From a position, so many bytes; fewer only at the end of the file. Raises ModelError."""


@dataclass(slots=True)
class ReadBudget:
    """How much may still be read of a model, over all its files."""

    left: int = MAX_READ_BYTES
    exceeded: str = f"its header has more than {MAX_READ_BYTES >> 20} MiB"

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise DownloadFailed(self.exceeded)


class Ranged(io.RawIOBase):
    """Pieces as a file that is read in order. Raises DownloadFailed if one does not match the
    first, or if more is read than allowed."""

    def __init__(
        self, pieces: Pieces, allowance: ReadBudget, first: int = _FIRST_WINDOW, tail: int = 0
    ) -> None:
        """`first` bytes are read at once, and `tail` bytes at the end, which are kept."""
        self._pieces = pieces
        self._allowance = allowance
        self._at = self._base = 0
        self._window = _FIRST_WINDOW
        start = pieces(0, first)
        self.size, self.validator = start.size, start.validator
        self.packed_bytes = start.packed_bytes
        self._block = self._checked(start, 0, first)
        self._tail_at = max(len(self._block), self.size - tail)
        self._tail = b""
        if tail and self._tail_at < self.size:
            end = pieces(self._tail_at, self.size - self._tail_at)
            self._tail = self._checked(end, self._tail_at, self.size - self._tail_at)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Some bytes, like a raw file; none at the end."""
        if self._at >= self.size or size == 0:
            return b""
        block, base = self._block, self._base
        if self._tail and self._at >= self._tail_at:
            block, base = self._tail, self._tail_at
        elif not base <= self._at < base + len(block):
            self._window = min(2 * self._window, _LARGEST_WINDOW)
            piece = self._pieces(self._at, self._window)
            block = self._block = self._checked(piece, self._at, self._window)
            base = self._base = self._at
        start = self._at - base
        data = block[start:] if size < 0 else block[start : start + size]
        self._at += len(data)
        return data

    def _checked(self, piece: Piece, at: int, count: int) -> bytes:
        if (piece.size, piece.validator) != (self.size, self.validator):
            raise DownloadFailed("the file there changed while its header was read")
        if len(piece.data) != min(count, max(0, self.size - at)):
            raise DownloadFailed("the server sends fewer or more bytes than it states")
        self._allowance.take(len(piece.data))
        return piece.data
