"""Models that already lie on the node: `file:///absolute/path`.

They are copied. A link to the original would let whoever rewrites it change, or by truncating kill
(SIGBUS), a process that has the model mapped.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from reconciler.errors import DownloadFailed
from reconciler.models.partial import CHUNK
from reconciler.models.scheme import FetchRequest, Scheme


def _check(source: str) -> str | None:
    try:
        url = urlsplit(source)
    except ValueError as error:
        return f"not a URL: {error}"
    if url.netloc not in {"", "localhost"}:
        return f'write three slashes, file:///path: "{url.netloc}" would be another machine'
    if url.query or url.fragment:
        return "write ? as %3F and # as %23 in the path"
    path = unquote(url.path)
    if not path.startswith("/") or path.endswith("/"):
        return "file:// needs the absolute path of one file"
    if not path.isprintable():
        return "the path holds unprintable characters"
    return None


def _fetch(request: FetchRequest) -> None:
    path = unquote(urlsplit(request.source).path)
    try:
        with open(path, "rb", opener=_open_at_once) as original:
            _copy(original, path, request)
    except OSError as error:
        raise DownloadFailed(f"cannot read {path}: {error.strerror or error}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Opening a named pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _copy(original: BinaryIO, path: str, request: FetchRequest) -> None:
    partial = request.partial
    before = os.fstat(original.fileno())
    if not stat.S_ISREG(before.st_mode):
        raise DownloadFailed(f"{path} is not a file")
    version = _version(before)
    if partial.received and partial.validator == version and partial.received <= before.st_size:
        original.seek(partial.received)
        partial.resume(version, before.st_size)
    else:
        partial.begin(version, before.st_size)
    while chunk := original.read(CHUNK):
        partial.write(chunk)
    if _version(os.fstat(original.fileno())) != version:
        raise DownloadFailed(f"{path} changed while it was copied")


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


SCHEME = Scheme("file", _check, hosts=lambda source: (), fetch=_fetch)
