"""Text that comes piece by piece, broken between words where a terminal's line ends. Pure."""

from __future__ import annotations

import unicodedata

_FENCE = "```"


class WordWrap:
    """A word is held back until it is whole. A word that is wider than a line stays whole, and so
    do the lines of code between fences: they are there to be copied. No width: nothing is broken.
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._word = ""
        self._line = ""  # what is printed of it, without the word that is held back
        self._spaces = ""  # before that word
        self._is_code = False

    def feed(self, text: str) -> str:
        """What can be printed by now."""
        if self._width is None:
            return text
        return "".join(map(self._next, text))

    def end(self) -> str:
        """The rest."""
        return self._placed()

    def _next(self, character: str) -> str:
        if character == "\n":
            out = self._placed() + self._spaces + "\n"
            if self._line.startswith(_FENCE):
                self._is_code = not self._is_code
            self._line = self._spaces = ""
            return out
        if character.isspace():
            out = self._placed()
            self._spaces += character
            return out
        self._word += character
        return self._placed() if _is_wide(character) else ""  # it may end a line after each

    def _placed(self) -> str:
        """The word that is held back, on this line or the next."""
        if not self._word:
            return ""
        wanted = _columns(self._line + self._spaces + self._word)
        assert self._width is not None, "else nothing is held back"
        breaks = bool(self._line) and not self._is_code and wanted > self._width
        out = f"\n{self._word}" if breaks else self._spaces + self._word
        self._line = self._word if breaks else self._line + out
        self._word = self._spaces = ""
        return out


def _columns(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 1 + _is_wide(c) for c in text)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"
