"""Where model files come from: one module a scheme, one row in SCHEMES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from reconciler.errors import ModelError
from reconciler.models.file import SCHEME as FILE
from reconciler.models.https import SCHEME as HTTPS
from reconciler.models.partial import Partial, Progress
from reconciler.models.pypi import SCHEME as PYPI
from reconciler.models.repository import SCHEME as REPOSITORY
from reconciler.models.scheme import FetchContext, FetchRequest, Scheme

__all__ = [
    "SCHEMES",
    "FetchContext",
    "FetchRequest",
    "Partial",
    "Progress",
    "Scheme",
    "check_source",
    "fetch",
    "hosts_of",
    "scheme_of",
]

SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "https": HTTPS,
        "http": HTTPS,  # loopback only: its check refuses every other
        "file": FILE,
        "pypi": PYPI,
        "": REPOSITORY,
    }
)
"""What stands before `://` in a source -> how to fetch it. A path in the repository has none."""

_LATER = frozenset({"hf", "oci"})
_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(source: str) -> Scheme | None:
    """The row for a source; None where this version knows no way to fetch it."""
    return SCHEMES.get(_prefix(source))


def check_source(source: str) -> str | None:
    """Why a source is no address that can be fetched, or None. Pure."""
    scheme = scheme_of(source)
    if scheme:
        return scheme.check(source)
    prefix = _prefix(source)
    known = "https://, file:///, pypi:// or a path inside the repository"
    if prefix in _LATER:
        return f"{prefix}:// is not supported yet by this version: use {known}"
    return f'no such source scheme "{prefix}": use {known}'


def hosts_of(source: str) -> tuple[str, ...]:
    """What allowedHosts must list for the source; empty for what needs no download. Pure."""
    scheme = scheme_of(source)
    return scheme.hosts(source) if scheme and scheme.check(source) is None else ()


def fetch(request: FetchRequest) -> None:
    """Leave the whole file in the request's partial. Raises like Scheme.fetch."""
    scheme = scheme_of(request.source)
    reason = check_source(request.source)
    if scheme is None or reason:
        raise ModelError(f"{request.source}: {reason}")
    allowed = request.context.allowed_hosts
    for host in scheme.hosts(request.source) if allowed is not None else ():
        if host not in (allowed or ()):
            raise ModelError(f"{host} is not in the Fleet's allowedHosts: add it there")
    scheme.fetch(request)


def _prefix(source: str) -> str:
    match = _PREFIX.match(source)
    return match[1].lower() if match else ""
