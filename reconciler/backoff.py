"""How long to wait before the next try, wherever something is tried again. Pure."""

from __future__ import annotations

_MOST_DOUBLED = 32  # beyond, every pause is the longest


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds after that many failures in a row: `first_s`, doubled with each, and `longest_s` at
    most. 0: none has failed."""
    if failures < 1:
        return 0.0
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLED))
