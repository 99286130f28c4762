"""Models that are already on the node: `file:///absolute/path`, or a folder with a `/` at the end.

They are copied. With a link to the original, rewriting the file could change a process that has the
model mapped, and truncating it would kill the process (SIGBUS). Where a Model says `inPlace` its
author takes that in exchange for the disk and the time of a copy: the original is read once, and
known from then on by its device, inode, size, mtime and ctime. A link at the path is followed if it
leads to a file, so that a folder of a download cache can be named. Files that are not on a disk
are refused: otherwise the author of a Model could have /proc/self/environ, this program's own
variables, stored as one.
"""

from __future__ import annotations

import functools
import hashlib
import os
import posixpath
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from reconciler.api.errors import DownloadFailed, ModelError
from reconciler.lookalike import lookalike
from reconciler.models.partial import CHUNK, Progress
from reconciler.models.ranged import Piece, Pieces
from reconciler.models.scheme import (
    FetchRequest,
    FileListing,
    ListRequest,
    PieceRequest,
    RemoteFile,
    Scheme,
)
from reconciler.models.tree import MAX_FILES, shards_of

_OF_THE_KERNEL = ("/proc", "/sys", "/dev")


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
    if not path.startswith("/") or path == "/":
        return "file:// needs the absolute path of a file, or of a folder with a / behind it"
    if not path.isprintable():
        return "the path holds unprintable characters"
    return _not_on_disk(posixpath.normpath(path))


def _not_on_disk(path: str) -> str | None:
    """Why a path without `..` and links cannot be a model."""
    top = "/" + path.lstrip("/").partition("/")[0]
    return (
        f"what lies in {top} belongs to the system and is not a model"
        if top in _OF_THE_KERNEL
        else None
    )


def _is_folder(source: str) -> bool:
    return urlsplit(source).path.endswith("/")


def _files(request: ListRequest) -> FileListing:
    path = Path(unquote(urlsplit(request.source).path))
    try:
        if _is_folder(request.source):
            paths = sorted(_below(path))
            return FileListing(tuple(_remote(path, name) for name in paths), folder=True)
        names = shards_of(path.name) or (path.name,)
        return FileListing(tuple(_remote(path.parent, name) for name in names))
    except OSError as error:
        raise DownloadFailed(_unreadable(path, error), is_refusal=True) from error


def _unreadable(path: str | Path, error: OSError) -> str:
    where = str(error.filename or path)
    similar = lookalike(where, os.listdir) if isinstance(error, FileNotFoundError) else ""
    return f"cannot read {where}: {error.strerror or error}{similar and '; '}{similar}"


def _below(top: Path) -> Iterator[str]:
    """The files below a folder by their relative paths, without hidden ones."""
    for count, entry in enumerate(_walk(top, "")):
        if count == MAX_FILES:
            why = f"{top} holds more than {MAX_FILES} files: that is not a model"
            raise ModelError(why, is_refusal=True)
        yield entry


def _walk(top: Path, folder: str) -> Iterator[str]:
    with os.scandir(top / folder) as entries:
        for entry in entries:
            path = f"{folder}{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(top, f"{path}/")
            elif entry.is_file():
                yield path


def _remote(folder: Path, name: str) -> RemoteFile:
    path = folder / name
    status = path.stat()
    return RemoteFile(name, path.as_uri(), status.st_size, version=version_of(status))


def _fetch(request: FetchRequest) -> None:
    path = unquote(urlsplit(request.source).path)
    try:
        with open(path, "rb", opener=_open_at_once) as original:
            if reason := _not_on_disk(os.path.realpath(path)):  # a link may lead there
                raise ModelError(f"{path}: {reason}")
            _copy(original, path, request)
    except OSError as error:
        raise DownloadFailed(_unreadable(path, error)) from error


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file that was read where it lies: without links on the way, and with what it is known by
    until somebody writes it."""

    path: Path
    size_bytes: int
    sha256: str
    version: str


def read_in_place(source: str, progress: Progress, cancelled: threading.Event) -> PlacedFile:
    """All of a file's bytes, which stay where they are. Raises ModelError, as `fetch` does."""
    path = os.path.realpath(unquote(urlsplit(source).path))
    if reason := _not_on_disk(path):
        raise ModelError(f"{path}: {reason}")
    digest, received = hashlib.sha256(), 0
    try:
        with open(path, "rb", buffering=0, opener=_open_at_once) as original:
            before = os.fstat(original.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise DownloadFailed(f"{path} is not a file")
            while chunk := original.read(CHUNK):
                if cancelled.is_set():
                    raise DownloadFailed("stopped while it was read")
                digest.update(chunk)
                received += len(chunk)
                progress(received, before.st_size)
            if version_of(os.fstat(original.fileno())) != version_of(before):
                raise DownloadFailed(f"{path} changed while it was read")
    except OSError as error:
        raise DownloadFailed(_unreadable(path, error)) from error
    return PlacedFile(Path(path), received, digest.hexdigest(), version_of(before))


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking: opening a named pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _copy(original: BinaryIO, path: str, request: FetchRequest) -> None:
    partial = request.partial
    before = os.fstat(original.fileno())
    if not stat.S_ISREG(before.st_mode):
        raise DownloadFailed(f"{path} is not a file")
    version = version_of(before)
    if partial.received and partial.validator == version and partial.received <= before.st_size:
        original.seek(partial.received)
        partial.resume(version, before.st_size)
    else:
        partial.begin(version, before.st_size)
    while chunk := original.read(CHUNK):
        partial.write(chunk)
    if version_of(os.fstat(original.fileno())) != version:
        raise DownloadFailed(f"{path} changed while it was copied")


def _pieces(request: PieceRequest) -> Pieces:
    return functools.partial(_piece, unquote(urlsplit(request.source).path))


def _piece(path: str, at: int, count: int) -> Piece:
    try:
        with open(path, "rb", buffering=0, opener=_open_at_once) as original:
            status = os.fstat(original.fileno())
            if reason := _not_on_disk(os.path.realpath(path)):
                raise ModelError(f"{path}: {reason}", is_refusal=True)
            if not stat.S_ISREG(status.st_mode):
                raise DownloadFailed(f"{path} is not a file", is_refusal=True)
            original.seek(at)
            return Piece(original.read(count), status.st_size, version_of(status))
    except OSError as error:
        raise DownloadFailed(_unreadable(path, error), is_refusal=True) from error


def version_of(status: os.stat_result) -> str:
    """Return the identity of a file on this machine: its device and its `identity_on_disk`."""
    return f"{status.st_dev}-{identity_on_disk(status)}"


def identity_on_disk(status: os.stat_result) -> str:
    """Return a value that changes when a file is written or replaced. A program can set a file's
    mtime back but not its ctime. A chmod, a rename and a hard link change the ctime as well."""
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


SCHEME = Scheme("file", _check, lambda source: (), _fetch, _files, _is_folder, _pieces)
