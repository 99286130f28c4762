"""Where model files come from: one module a scheme, one row in SCHEMES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import unquote

from reconciler.errors import ModelError
from reconciler.models.beside import find_beside
from reconciler.models.file import SCHEME as FILE
from reconciler.models.hf import SCHEME as HF
from reconciler.models.https import SCHEME as HTTPS
from reconciler.models.oci import SCHEME as OCI
from reconciler.models.partial import Partial, Progress
from reconciler.models.pypi import SCHEME as PYPI
from reconciler.models.repository import SCHEME as REPOSITORY
from reconciler.models.scheme import (
    Access,
    FetchContext,
    FetchRequest,
    Listing,
    ListRequest,
    RemoteFile,
    Scheme,
)
from reconciler.models.tree import check_paths, matching, wrong_shard

__all__ = [
    "SCHEMES",
    "Access",
    "FetchContext",
    "FetchRequest",
    "ListRequest",
    "Listing",
    "Partial",
    "Progress",
    "RemoteFile",
    "Scheme",
    "check_source",
    "fetch",
    "hosts_of",
    "is_folder",
    "list_files",
    "scheme_of",
]

SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "hf": HF,
        "https": HTTPS,
        "http": HTTPS,  # loopback only: its check refuses every other
        "file": FILE,
        "pypi": PYPI,
        "oci": OCI,
        "": REPOSITORY,
    }
)
"""What stands before `://` in a source -> how to fetch it. A path in the repository has none."""

_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_KNOWN = "hf://, https://, file:///, oci://, pypi:// or a path inside the repository"


def scheme_of(source: str) -> Scheme | None:
    """The row for a source; None where this version knows no way to fetch it."""
    return SCHEMES.get(_prefix(source))


def check_source(source: str) -> str | None:
    """Why a source is no address that can be fetched, or None. Pure."""
    scheme = scheme_of(source)
    if scheme:
        return scheme.check(source) or wrong_shard(_file_name(source))
    return f'no such source scheme "{_prefix(source)}": use {_KNOWN}'


def hosts_of(source: str) -> tuple[str, ...]:
    """What allowedHosts must list for the source; empty for what needs no download. Pure."""
    scheme = scheme_of(source)
    return scheme.hosts(source) if scheme and scheme.check(source) is None else ()


def is_folder(source: str) -> bool:
    """Whether the source names several files of which spec.files may choose. Pure."""
    scheme = scheme_of(source)
    return bool(scheme and scheme.check(source) is None and scheme.is_folder(source))


def list_files(request: ListRequest) -> Listing:
    """Which files the source means, with paths that are safe on disk. Raises like Scheme.fetch."""
    beside = request.context.beside
    if beside is not None and hosts_of(request.source):
        copy = find_beside(beside, request.source, request.digest)
        request = replace(request, source=copy or request.source)
    scheme, reason = scheme_of(request.source), check_source(request.source)
    if scheme is None or reason:
        raise ModelError(f"{request.source}: {reason}")
    _require_allowed(scheme, request.source, request.context)
    listing = scheme.files(request)
    if listing.folder and request.patterns:
        chosen = set(matching([file.path for file in listing.files], request.patterns))
        listing = replace(listing, files=tuple(f for f in listing.files if f.path in chosen))
    if listing.folder or len(listing.files) > 1:
        check_paths([file.path for file in listing.files])
    return listing


def fetch(request: FetchRequest) -> None:
    """Leave the whole file in the request's partial. Raises like Scheme.fetch.

    The source is a RemoteFile's; with its `access`, the policy was asked when it was listed.
    """
    scheme = scheme_of(request.source)
    if scheme is None or scheme.fetch is None:
        raise ModelError(f"{request.source}: not the address of one file")
    if reason := scheme.check(request.source):
        raise ModelError(f"{request.source}: {reason}")
    if request.access is None:
        _require_allowed(scheme, request.source, request.context)
    scheme.fetch(request)


def _require_allowed(scheme: Scheme, source: str, context: FetchContext) -> None:
    allowed = context.allowed_hosts
    for host in scheme.hosts(source) if allowed is not None else ():
        if host not in (allowed or ()):
            raise ModelError(f"{host} is not in the Fleet's allowedHosts: add it there")


def _file_name(source: str) -> str:
    """What a source calls its file: without query, and without the revision of a Hub's."""
    revision = r"@[^@]*$" if _prefix(source) == "hf" else r"[?#].*$"
    return unquote(re.sub(revision, "", source).rpartition("/")[2])


def _prefix(source: str) -> str:
    match = _PREFIX.match(source)
    return match[1].lower() if match else ""
