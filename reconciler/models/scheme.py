"""What the module of a source scheme provides. A scheme is data and functions, not a base class."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from reconciler.api.errors import ModelError
from reconciler.models.partial import Partial
from reconciler.models.ranged import Pieces


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What the fleet adds to a source: the Fleet's policy, and the bytes of its own repository."""

    allowed_hosts: tuple[str, ...] | None = None  # None: any host
    mirrors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # host -> URL
    # as Checkout.open; excluded from comparison: another checkout is not another policy
    open_repository: Callable[[str], BinaryIO] | None = field(default=None, compare=False)
    # as Checkout.folder: the files below a folder, by their paths in the repository
    list_repository: Callable[[str], Sequence[str]] | None = field(default=None, compare=False)
    beside: Path | None = None  # a folder of models that came with the fleet: searched first
    # the only hosts that may have a private address; None: also the source's own
    private_hosts: tuple[str, ...] | None = None
    # for messages: the hosts of all models of the fleet, and whether it has a Fleet document
    used_hosts: tuple[str, ...] = field(default=(), compare=False)
    has_policy: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class FileAccess:
    """How to request the files of one listing over https, beyond their URLs.

    `authorization` is sent to `origin` (scheme://host:port) and nowhere else, also after a
    redirect. Redirects may also lead to hosts below `domains`. `explain` turns the status and
    headers of a refusal into an error with advice for the user; None: nothing special. `is_own`:
    the origin comes from this machine's settings, not from a fleet. `sign` makes the login of a
    store that wants another one for each request, of its URL.
    """

    origin: str
    authorization: str | None = field(default=None, repr=False)
    domains: tuple[str, ...] = ()
    explain: Callable[[int, Mapping[str, str]], ModelError | None] = field(
        default=lambda status, headers: None, compare=False
    )
    is_own: bool = False
    sign: Callable[[str], Mapping[str, str]] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a model: its path in the model, and the address to fetch it from.

    `version` changes with the bytes at `source`, if the server states it in advance.
    """

    path: str
    source: str
    size_bytes: int | None = None
    sha256: str | None = None
    version: str | None = None
    access: FileAccess | None = None


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a model. `folder`: an engine may need them as a folder, with their paths.
    `resolved` is the commit or digest of a moving name (a branch, a tag), empty if there was
    none."""

    files: tuple[RemoteFile, ...]
    folder: bool = False
    resolved: str = ""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Asks which files a source means. `patterns` are spec.files; `format` is the Model's, and
    `digest` the model's expected digest, if known."""

    source: str
    patterns: tuple[str, ...] = ()
    format: str = "gguf"
    context: FetchContext = FetchContext()
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)
    hf_token_file: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One file to fetch into `partial`, which may have earlier bytes of it.

    `sha256` is the file's expected digest, if known: it makes resuming safe even if the server
    cannot tell whether its file is still the same.
    """

    source: str
    partial: Partial
    context: FetchContext = FetchContext()
    sha256: str | None = None
    access: FileAccess | None = None


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """Asks for pieces of one file before it is fetched. `source` is a RemoteFile's."""

    source: str
    context: FetchContext = FetchContext()
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)
    access: FileAccess | None = None


def one_file(request: ListRequest) -> FileListing:
    """A listing of the one file at the source's address."""
    name = request.source.partition("?")[0].rpartition("/")[2]
    return FileListing((RemoteFile(name, request.source),))


@dataclass(frozen=True, slots=True)
class Scheme:
    """One row of the table.

    `check` returns why a source's address cannot be fetched, or None: pure, no IO. `hosts` are the
    names that the Fleet's allowedHosts must list; none for local sources.

    `files` lists the files that a source means. It raises as `fetch` does.

    `fetch` leaves the whole file in the request's partial, or raises DownloadFailed (try again,
    what has arrived is kept), ModelCorrupt (the bytes are wrong) or ModelError (needs a user). It
    stops within a second when the partial is cancelled. None: `files` returns addresses of other
    rows.

    `is_folder` returns whether a source may mean several files: pure.

    `pieces` reads ranges of a file without fetching it; nothing is requested before the first
    piece, and one reader reads in order. None: the content is known only once the model is here, or
    `files` returns addresses of other rows.

    `is_fixed` returns whether a source always means the same bytes: pure.
    """

    name: str
    check: Callable[[str], str | None]
    hosts: Callable[[str], tuple[str, ...]]
    fetch: Callable[[FetchRequest], None] | None
    files: Callable[[ListRequest], FileListing] = one_file
    is_folder: Callable[[str], bool] = lambda source: False
    pieces: Callable[[PieceRequest], Pieces] | None = None
    is_fixed: Callable[[str], bool] = lambda source: False
