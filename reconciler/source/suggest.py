"""The name that was probably meant by one that does not exist. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_NAMES = 300  # comparing is slow: a name against 300 others takes about 5 ms


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """` (did you mean "x"?)`, or empty if no known name is close."""
    right = closest(wrong, known)
    return f' (did you mean "{right}"?)' if right else ""


def closest(wrong: object, known: Iterable[str]) -> str | None:
    """The known name that is nearest in spelling, ignoring case; None if none is near."""
    if not isinstance(wrong, str) or len(wrong) > 100:
        return None
    by_lower = {name.lower(): name for name in known}
    lower: Iterable[str] = by_lower
    if len(by_lower) > _MAX_NAMES:
        lower = _alike(wrong.lower(), by_lower)
    matches = difflib.get_close_matches(wrong.lower(), lower, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def _alike(wrong: str, names: Iterable[str]) -> list[str]:
    """The names that begin or end alike and are about as long, where there are very many."""
    near = (
        name
        for name in names
        if abs(len(name) - len(wrong)) <= 3 and (name[:2] == wrong[:2] or name[-3:] == wrong[-3:])
    )
    ranked = sorted(near, key=lambda name: sum(a != b for a, b in zip(name, wrong, strict=False)))
    return ranked[:_MAX_NAMES]
