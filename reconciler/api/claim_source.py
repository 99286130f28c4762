"""A source on a claim of a cluster: `pvc://CLAIM/path`, or a folder with a `/` at the end. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_SOURCE = re.compile(r"pvc://(?P<claim>[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)/(?P<path>[^\\?#]+)")
_PATH = re.compile(r"[A-Za-z0-9_+=,@%()~ ./-]+")


class PlaceOnClaim(NamedTuple):
    claim: str
    path: str


def on_claim(source: str) -> PlaceOnClaim | None:
    """Where on a claim a source lies; None: it is of another scheme, or refused."""
    match = _SOURCE.fullmatch(source) if source.startswith("pvc://") else None
    if match is None or not is_inside(match["path"]):
        return None
    return PlaceOnClaim(match["claim"], match["path"])


def is_inside(path: str) -> bool:
    """Whether a path stays in the volume that it is of, and needs no quotes anywhere."""
    parts = path.removesuffix("/").split("/")
    return bool(_PATH.fullmatch(path)) and not any(part in ("", ".", "..") for part in parts)
