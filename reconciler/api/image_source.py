"""A source in an image of a registry: `image://REGISTRY/REPOSITORY:TAG/path`, or a folder with a
`/` at the end. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.api.claim_source import is_inside

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_SOURCE = re.compile(
    r"image://(?P<reference>(?P<host>[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?"
    rf"/{_NAME}(?:/{_NAME})*"
    r"(?=[:@])(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?)"
    r"/(?P<path>[^\\?#]+)"
)
_MAX_LENGTH = 512


class PlaceInImage(NamedTuple):
    reference: str
    path: str
    host: str
    is_fixed: bool  # by its digest


def in_image(source: str) -> PlaceInImage | None:
    """Where in an image a source lies; None: it is of another scheme, or refused."""
    if not source.startswith("image://") or len(source) > _MAX_LENGTH:
        return None
    match = _SOURCE.fullmatch(source)
    if match is None or not is_inside(match["path"]):
        return None
    return PlaceInImage(match["reference"], match["path"], match["host"], bool(match["digest"]))
