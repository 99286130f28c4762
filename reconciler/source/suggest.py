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
    if not isinstance(wrong, str) or not 0 < len(wrong) <= 100:
        return None
    by_lower = {name.lower(): name for name in known}
    if len(by_lower) > _MAX_NAMES:
        by_lower = dict(_alike(wrong.lower(), by_lower))
    found = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def _alike(wrong: str, names: dict[str, str]) -> list[tuple[str, str]]:
    """Of very many names, those that begin or end alike and are about as long."""
    near = (
        pair
        for pair in names.items()
        if abs(len(pair[0]) - len(wrong)) <= 3
        and (pair[0][:2] == wrong[:2] or pair[0][-3:] == wrong[-3:])
    )
    ranked = sorted(
        near, key=lambda pair: sum(a != b for a, b in zip(pair[0], wrong, strict=False))
    )
    return ranked[:_MAX_NAMES]
