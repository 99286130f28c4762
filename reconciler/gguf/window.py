"""A file read in order, a chunk at a time and within limits: what a header walk reads from."""

from __future__ import annotations

import struct
from typing import BinaryIO

from reconciler.api.errors import HeaderError

MAX_HEADER_BYTES = 256 * 2**20
_CHUNK = 2**20
_U64 = struct.Struct("<Q")


class Window:
    """The file's bytes in order, a chunk at a time. `position` is where the next read begins."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self._limit = min(size, MAX_HEADER_BYTES)
        self._seekable = file.seekable()
        self._buffer = b""
        self._at = 0  # in the buffer
        self._base = 0  # of the buffer, in the file

    @property
    def position(self) -> int:
        return self._base + self._at

    @property
    def remaining(self) -> int:
        """Bytes that the header may still have."""
        return self._limit - self.position

    def require(self, count: int, what: str) -> None:
        """Refuse a header that goes on beyond the file or beyond the largest header."""
        if count > self.remaining:
            if self.position + count > self.size:
                raise HeaderError(
                    f"{what} reaches beyond the end of the file ({self.size} bytes):"
                    " it is cut short or damaged"
                )
            raise HeaderError(f"the header is larger than {MAX_HEADER_BYTES // 2**20} MiB ({what})")

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        self.require(count, what)
        self._fill(count, what)
        start = self._at
        self._at += count
        return self._buffer[start : self._at]

    def unpack(self, form: struct.Struct, what: str) -> tuple[int, ...]:
        self.require(form.size, what)
        self._fill(form.size, what)
        values = form.unpack_from(self._buffer, self._at)
        self._at += form.size
        return values

    def skip(self, count: int, what: str) -> None:
        """Step over bytes: a seek where the file can, else a read."""
        self.require(count, what)
        kept = len(self._buffer) - self._at
        if count <= kept:
            self._at += count
            return
        target = self.position + count
        if self._seekable:
            self._file.seek(count - kept, 1)
        else:
            left = count - kept
            while left:
                left -= len(self._read(min(left, _CHUNK), what))
        self._buffer, self._at, self._base = b"", 0, target

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings, each a 64-bit length and its bytes. The one hot loop here."""
        length_at = _U64.unpack_from
        while count:
            self.require(8, what)
            self._fill(8, what)
            buffer, at, last, done = self._buffer, self._at, len(self._buffer) - 8, 0
            for done in range(1, count + 1):  # noqa: B007  (the count is needed after the loop)
                at += 8 + length_at(buffer, at)[0]
                if at > last:
                    break
            count -= done
            self.skip(at - self._at, what)

    def _fill(self, count: int, what: str) -> None:
        """Have `count` bytes in the buffer; the caller has checked that they should exist."""
        if len(self._buffer) - self._at >= count:
            return
        parts = [self._buffer[self._at :]]
        have = len(parts[0])
        while have < count:
            parts.append(self._read(max(count - have, _CHUNK), what))
            have += len(parts[-1])
        self._base, self._at = self.position, 0
        self._buffer = b"".join(parts)

    def _read(self, count: int, what: str) -> bytes:
        data = self._file.read(count)
        if not data:
            raise HeaderError(
                f"the file ended within {what}: it is cut short, or was cut meanwhile"
            )
        return data
