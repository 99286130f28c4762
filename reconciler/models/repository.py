"""Models in the fleet's own repository: a source without a scheme. `/` ends a folder."""

from __future__ import annotations

import os
import posixpath

from reconciler.api.errors import DownloadFailed, ModelError, SourceError, error_text
from reconciler.models.partial import CHUNK
from reconciler.models.scheme import FetchRequest, FileListing, ListRequest, RemoteFile, Scheme
from reconciler.models.tree import shards_of


def _check(source: str) -> str | None:
    parts = source.removesuffix("/").split("/")
    if source.startswith("/"):
        return f"an absolute path is not inside the repository: write file://{source}"
    if ".." in parts:
        return 'the path must stay inside the repository: no ".."'
    if "" in parts or "." in parts:
        right = posixpath.normpath(source) + ("/" if source.endswith("/") else "")
        return f'no "./" and no "//" in a path from the top of the repository; write {right}'
    if "\\" in source or not source.isprintable():
        return "a path inside the repository uses / and printable characters only"
    return None


def _files(request: ListRequest) -> FileListing:
    if not _is_folder(request.source):
        folder, slash, last = request.source.rpartition("/")
        names = shards_of(last) or (last,)
        return FileListing(tuple(RemoteFile(name, f"{folder}{slash}{name}") for name in names))
    if request.context.list_repository is None:
        raise ModelError(f"{request.source}: no repository is at hand to read it from")
    try:
        paths = request.context.list_repository(request.source)
    except SourceError as error:
        raise DownloadFailed(str(error)) from error
    return FileListing(
        tuple(RemoteFile(path.removeprefix(request.source), path) for path in paths), folder=True
    )


def _is_folder(source: str) -> bool:
    return source.endswith("/")


def _fetch(request: FetchRequest) -> None:
    """Copy from the checkout. Always from the start: it is local, and a commit never changes."""
    if request.context.open_repository is None:
        raise ModelError(f"{request.source}: no repository is at hand to read it from")
    try:
        stream = request.context.open_repository(request.source)
    except SourceError as error:
        raise DownloadFailed(str(error)) from error
    with stream:
        request.partial.begin(validator=None, total=_size(stream))
        try:
            while chunk := stream.read(CHUNK):
                request.partial.write(chunk)
        except (OSError, SourceError) as error:
            raise DownloadFailed(f"{request.source}: {error_text(error)}") from error


def _size(stream: object) -> int | None:
    """The size of a regular file; None for a pipe, whose length is unknown."""
    try:
        status = os.fstat(stream.fileno())  # type: ignore[attr-defined]  # a stream may lack it
    except (AttributeError, OSError):
        return None
    return status.st_size or None  # a pipe has size 0


SCHEME = Scheme("repository", _check, lambda source: (), _fetch, _files, _is_folder)
