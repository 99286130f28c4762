"""Names and versions of Python packages, as PEP 503 and PEP 440 write them. Pure."""

from __future__ import annotations

import re

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?"
# PEP 440, public and local versions; no wildcard
_VERSION = (
    r"(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?"
    r"(?:\+[a-z0-9]+(?:[._-][a-z0-9]+)*)?"
)
_REQUIREMENT = re.compile(rf"({_NAME})==({_VERSION})", re.IGNORECASE)
_SOURCE = re.compile(rf"pypi://{_REQUIREMENT.pattern}", re.IGNORECASE)
_MAX_LENGTH = 300


def split_source(source: str) -> tuple[str, str] | None:
    """The normalized name and the version in `pypi://name==version`; None if the source has another
    form."""
    match = _SOURCE.fullmatch(source) if len(source) <= _MAX_LENGTH else None
    return (normalised(match[1]), match[2].lower()) if match else None


def exact_requirement(text: str) -> tuple[str, str] | None:
    """The same for a `Requires-Dist` line; None for ranges, extras, conditions and URLs."""
    match = (
        _REQUIREMENT.fullmatch(re.sub(r"[\s()]", "", text)) if len(text) <= _MAX_LENGTH else None
    )
    return (normalised(match[1]), match[2].lower()) if match else None


def normalised(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
