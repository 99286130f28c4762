"""What the module of a source scheme provides. A scheme is data and functions, not a base class."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from reconciler.models.partial import Partial


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What the fleet adds to a source: the Fleet's policy, and the bytes of its own repository."""

    allowed_hosts: tuple[str, ...] | None = None  # None: any host
    mirrors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # host -> URL
    # as Checkout.open; another checkout is no other policy, so it does not count when comparing
    open_repository: Callable[[str], BinaryIO] | None = field(default=None, compare=False)
    # as Checkout.folder: the files below a folder, by their paths in the repository
    list_repository: Callable[[str], Sequence[str]] | None = field(default=None, compare=False)
    beside: Path | None = None  # a folder of models that came with the fleet: looked in first


@dataclass(frozen=True, slots=True)
class Access:
    """How the files of one listing are asked for over https, beyond their URLs.

    `authorization` goes to `origin` (scheme://host:port) and nowhere else, also after a redirect.
    Redirects may also lead to hosts below `domains`. `explain` turns the status and headers of a
    refusal into what a person can do; None: nothing special.
    """

    origin: str
    authorization: str | None = field(default=None, repr=False)
    domains: tuple[str, ...] = ()
    explain: Callable[[int, Mapping[str, str]], str | None] = field(
        default=lambda status, headers: None, compare=False
    )


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a model: its path in the model, and the address that brings it.

    `version` changes when the bytes at `source` do, where the other side says so beforehand.
    """

    path: str
    source: str
    size_bytes: int | None = None
    sha256: str | None = None
    version: str | None = None
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a model. `folder`: an engine may want them as a folder, with their paths.
    `resolved` is what a moving name (a branch, a tag) stood for, empty where there was none."""

    files: tuple[RemoteFile, ...]
    folder: bool = False
    resolved: str = ""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Asks which files a source means. `patterns` are spec.files; `format` is the Model's, and
    `digest` what the model must have in the end, where that is known."""

    source: str
    patterns: tuple[str, ...] = ()
    format: str = "gguf"
    context: FetchContext = FetchContext()
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)
    hf_token_file: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """One file to fetch into `partial`, which may hold earlier bytes of it.

    `sha256` is the digest that the file must have in the end, where it is known: it makes going on
    from earlier bytes safe even when the other side cannot say that its file is still the same.
    """

    source: str
    partial: Partial
    context: FetchContext = FetchContext()
    sha256: str | None = None
    access: Access | None = None


def one_file(request: ListRequest) -> Listing:
    """A source that is the address of one file."""
    name = request.source.partition("?")[0].rpartition("/")[2]
    return Listing((RemoteFile(name, request.source),))


@dataclass(frozen=True, slots=True)
class Scheme:
    """One row of the table.

    `check` says why a source is no address that can be fetched, or None: pure, no IO.
    `hosts` are the names that the Fleet's allowedHosts must list; none for what is already here.
    `files` says which files a source means. It raises as `fetch` does.
    `fetch` leaves the whole file in the request's partial, or raises DownloadFailed (try again,
    what has arrived is kept), ModelCorrupt (the bytes are wrong) or ModelError (only a person can
    help). It stops within a second when the partial is cancelled. None: `files` names addresses of
    other rows.
    `is_folder` says whether a source names more than a file: pure.
    """

    name: str
    check: Callable[[str], str | None]
    hosts: Callable[[str], tuple[str, ...]]
    fetch: Callable[[FetchRequest], None] | None
    files: Callable[[ListRequest], Listing] = one_file
    is_folder: Callable[[str], bool] = lambda source: False
