"""How long, and how long ago, in words. Pure."""

from __future__ import annotations


def age(seconds: float) -> str:
    """How long ago, in words: `3 s ago`, `14 min ago`."""
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """For how long, in words: `3 s`, `14 min`, `5 h`, `3 d`."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
