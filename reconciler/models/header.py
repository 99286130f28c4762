"""What the header of a model file says before the file is fetched: a few ranges instead of all of
it. 5-15 MB of a file of several GB, at most the 64 MiB that a header walk reads."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from typing import BinaryIO, cast

from reconciler.errors import DownloadFailed, ModelError
from reconciler.memory import ModelFacts
from reconciler.models import list_files
from reconciler.models.hop import get
from reconciler.models.scheme import FetchContext, ListRequest, RemoteFile

_TOTAL = re.compile(r"bytes \d+-\d+/(\d+)")
_BLOCK = 1 << 20


def remote_facts(source: str, context: FetchContext) -> ModelFacts:
    """The facts of a GGUF file on a web server or hub. Raises ModelError, HeaderError: they cannot
    be had so; several files, another scheme, or a server without ranges are such reasons."""
    from reconciler.gguf.header import read_header

    listing = list_files(ListRequest(source, context=context))
    if len(listing.files) != 1 or "://" not in listing.files[0].source:
        raise ModelError(f"{source}: not one file that can be looked into before it is fetched")
    (file,) = listing.files
    if not file.source.startswith(("https://", "http://")):
        raise ModelError(f"{source}: its header is known once it is fetched")
    fetch = _ranges(file, context)
    first, size = fetch(0)
    return read_header(cast(BinaryIO, _Ranged(first, size, fetch)), size)


Ranges = Callable[[int], tuple[bytes, int]]
"""From a position: the next bytes there, and the size of the whole file."""


def _ranges(file: RemoteFile, context: FetchContext) -> Ranges:
    cancelled = threading.Event()

    def fetch(at: int) -> tuple[bytes, int]:
        headers = {"Range": f"bytes={at}-{at + _BLOCK - 1}", "Accept-Encoding": "identity"}
        with get(file.source, headers, context, cancelled, file.access) as response:
            total = _TOTAL.fullmatch(response.getheader("Content-Range", ""))
            if response.status != 206 or total is None:
                explain = file.access.explain if file.access else lambda status, headers: None
                why = explain(response.status, dict(response.headers))
                said = why or f"HTTP {response.status} where a range was asked for"
                raise DownloadFailed(f"{file.source}: {said}")
            return response.read(_BLOCK), int(total[1])

    return fetch


class _Ranged(io.RawIOBase):
    """A file over HTTP, read in order; what is stepped over is not fetched."""

    def __init__(self, first: bytes, size: int, fetch: Ranges) -> None:
        self._block, self._base, self._at = first, 0, 0
        self._size, self._fetch = size, fetch

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        if self._at >= self._size:
            return b""
        if not self._base <= self._at < self._base + len(self._block):
            self._block, _ = self._fetch(self._at)
            self._base = self._at
        start = self._at - self._base
        data = self._block[start:] if size < 0 else self._block[start : start + size]
        self._at += len(data)
        return data
