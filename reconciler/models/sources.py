"""The schemes of sources, a row each in SCHEMES, and what a source means by its scheme."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import unquote

from reconciler.api.errors import ModelError
from reconciler.models.beside import find_beside
from reconciler.models.file import SCHEME as FILE
from reconciler.models.hf import SCHEME as HF
from reconciler.models.https import SCHEME as HTTPS
from reconciler.models.image import SCHEME as IMAGE
from reconciler.models.oci import SCHEME as OCI
from reconciler.models.pasted import as_source
from reconciler.models.pvc import SCHEME as PVC
from reconciler.models.pypi import SCHEME as PYPI
from reconciler.models.ranged import Pieces
from reconciler.models.repository import SCHEME as REPOSITORY
from reconciler.models.s3 import SCHEME as S3
from reconciler.models.scheme import (
    FetchContext,
    FetchRequest,
    FileListing,
    ListRequest,
    PieceRequest,
    Scheme,
)
from reconciler.models.tree import check_paths, matching, wrong_shard
from reconciler.models.url import shown

SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "hf": HF,
        "https": HTTPS,
        "http": HTTPS,  # loopback only: its check refuses every other
        "file": FILE,
        "pypi": PYPI,
        "oci": OCI,
        "s3": S3,
        "pvc": PVC,
        "image": IMAGE,
        "": REPOSITORY,
    }
)
"""The scheme before `://` in a source -> how to fetch it. A path in the repository has none."""

_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_KEPT = 1_024  # answers about sources, which a loop asks for again in each pass
_KNOWN = ", ".join(dict.fromkeys(f"{row.name}://" for prefix, row in SCHEMES.items() if prefix))


def scheme_of(source: str) -> Scheme | None:
    """The row for a source; None if this version does not know its scheme."""
    return SCHEMES.get(_prefix(source))


@functools.lru_cache(_KEPT)
def check_source(source: str) -> str | None:
    """Why a source cannot be fetched, judged by its address, or None. Pure."""
    if pasted := as_source(source):
        return pasted
    scheme = scheme_of(source)
    if scheme:
        return scheme.check(source) or wrong_shard(_file_name(source))
    return (
        f'no such source scheme "{_prefix(source)}": use {_KNOWN} or a path inside the repository'
    )


def is_fixed(source: str) -> bool:
    """Whether the source always means the same bytes. Pure."""
    scheme = scheme_of(source)
    return bool(scheme and scheme.check(source) is None and scheme.is_fixed(source))


@functools.lru_cache(_KEPT)
def hosts_of(source: str) -> tuple[str, ...]:
    """The hosts that allowedHosts must list for the source; empty if nothing is downloaded.
    Pure."""
    scheme = scheme_of(source)
    return scheme.hosts(source) if scheme and scheme.check(source) is None else ()


def is_folder(source: str) -> bool:
    """Whether the source may mean several files, of which spec.files can select some. Pure."""
    scheme = scheme_of(source)
    return bool(scheme and scheme.check(source) is None and scheme.is_folder(source))


def list_files(request: ListRequest) -> FileListing:
    """The files that the source means, with paths that are safe on disk. Raises like
    Scheme.fetch."""
    beside = request.context.beside
    if beside is not None and hosts_of(request.source):
        copy = find_beside(beside, request.source, request.digest)
        request = replace(request, source=copy or request.source)
    scheme, reason = scheme_of(request.source), check_source(request.source)
    if scheme is None or reason:
        raise ModelError(f"{shown(request.source)}: {reason}")
    require_allowed(request.source, request.context)
    listing = scheme.files(request)
    if listing.folder and request.patterns:
        chosen = set(matching([file.path for file in listing.files], request.patterns))
        listing = replace(listing, files=tuple(f for f in listing.files if f.path in chosen))
    if listing.folder or len(listing.files) > 1:
        check_paths([file.path for file in listing.files])
    return listing


def fetch(request: FetchRequest) -> None:
    """Fetch the whole file into the request's partial. Raises like Scheme.fetch.

    The source is a RemoteFile's; with its `access`, the policy was checked when it was listed.
    """
    scheme = scheme_of(request.source)
    if scheme is None or scheme.fetch is None:
        raise ModelError(f"{shown(request.source)}: not the address of one file")
    if reason := scheme.check(request.source):
        raise ModelError(f"{shown(request.source)}: {reason}")
    if request.access is None:
        require_allowed(request.source, request.context)
    scheme.fetch(request)


def pieces(request: PieceRequest) -> Pieces:
    """Read ranges of one listed file without fetching it. Raises ModelError, also while reading."""
    scheme = scheme_of(request.source)
    if scheme is None or scheme.pieces is None:
        name = scheme.name if scheme else _prefix(request.source)
        raise ModelError(f"{name} does not support ranges: known once the model is here")
    if reason := scheme.check(request.source):
        raise ModelError(f"{shown(request.source)}: {reason}")
    return scheme.pieces(request)


def require_allowed(source: str, context: FetchContext) -> None:
    """Raises ModelError if the Fleet's policy forbids fetching it."""
    allowed = context.allowed_hosts
    for host in hosts_of(source) if allowed is not None else ():
        if host not in (allowed or ()):
            raise ModelError(f"{host} is not in the Fleet's allowedHosts: add it there")


def _file_name(source: str) -> str:
    """The file name in a source, without the query and without the revision of a Hub source."""
    revision = r"@[^@]*$" if _prefix(source) == "hf" else r"[?#].*$"
    return unquote(re.sub(revision, "", source).rpartition("/")[2])


def _prefix(source: str) -> str:
    match = _PREFIX.match(source)
    return match[1].lower() if match else ""
