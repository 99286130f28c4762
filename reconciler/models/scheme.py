"""What the module of a source scheme provides. A scheme is data and functions, not a base class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Scheme:
    """One row of the table.

    `check` says why a source is no address that can be fetched, or None: pure, no IO.
    `hosts` are the names that the Fleet's allowedHosts must list; none for what is already here.
    `fetch` leaves the whole file in the request's partial, or raises DownloadFailed (try again,
    what has arrived is kept), ModelCorrupt (the bytes are wrong) or ModelError (only a person can
    help). It stops within a second when the partial is cancelled.
    """

    name: str
    check: Callable[[str], str | None]
    hosts: Callable[[str], tuple[str, ...]]
    fetch: Callable[[FetchRequest], None]
