"""What may reach a terminal, and how it may look there. Pure."""

from __future__ import annotations

from enum import StrEnum


class Tone(StrEnum):
    """ANSI colours by meaning."""

    GOOD = "32"
    CHANGE = "33"
    BAD = "31"
    QUIET = "2"
    STRONG = "1"


class Style:
    """Colours text, or leaves it alone where nobody wants colour."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, tone: Tone, text: str) -> str:
        return f"\x1b[{tone}m{text}\x1b[0m" if self._colour and text else text


PLAIN = Style(colour=False)


def printable(text: str) -> str:
    """Text from a file, a model or a server with its control characters shown, not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(noun: str, count: int) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
