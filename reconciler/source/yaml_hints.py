"""What to do about text that is no YAML: the line that a parser stumbles over is often not the one
that is wrong, and its words are about tokens. Pure."""

from __future__ import annotations

import re
from bisect import bisect
from typing import NamedTuple

from reconciler.source.places import Place

_NO_COLON = re.compile(r"[ ]*(?P<key>[A-Za-z][\w-]*)(?P<between>[ ]+|:)(?P<value>[^\s:#][^#]*)")
_MARKER = re.compile(r"(---|\.\.\.)(\s|$)")
_OPENING = (":", "-", "|", ">")  # the line after one may begin anywhere
_OF_KEYS = ("mapping values are not allowed", "could not find expected ':'")
_OF_INDENTATION = ("mapping values are not allowed", "did not find expected key")
_OF_COLUMNS = (*_OF_INDENTATION, "did not find expected <document start>")


class Hint(NamedTuple):
    """The line to change, and the sentence that says how."""

    place: Place
    message: str


def hint(text: str, place: Place, what: str) -> Hint:
    """Where the mistake is and what to do about it. `what` is the parser's message about `place`,
    `text` has plain line breaks."""
    lines = text.split("\n")[: place.line]
    hinted = None
    if any(sign in what for sign in _OF_COLUMNS):
        hinted = _byte_order_mark(lines)
    if hinted is None and any(sign in what for sign in _OF_KEYS):
        hinted = _key_without_colon(lines)
    if hinted is None and any(sign in what for sign in _OF_INDENTATION):
        hinted = _misindented(lines)
    return hinted or Hint(place, what + _general(what))


def _byte_order_mark(lines: list[str]) -> Hint | None:
    """Find a U+FEFF that indents a line of the last document by one column."""
    for number in reversed(range(len(lines))):
        if lines[number].startswith("\ufeff"):
            return Hint(
                Place(number + 1, 1), "a byte-order mark in the middle of the file; remove it"
            )
        if _MARKER.match(lines[number]) and number < len(lines) - 1:
            return None
    return None


def _key_without_colon(lines: list[str]) -> Hint | None:
    """`modelRef chat` or `modelRef:chat` on the line before the one that cannot be read."""
    before = _content_before(lines)
    written = _NO_COLON.fullmatch(lines[before].rstrip()) if before is not None else None
    if before is None or written is None or ": " in lines[before]:
        return None
    right = f"{written['key']}: {written['value'].strip()}"
    place = Place(before + 1, written.start("key") + 1)
    return Hint(place, f"no ': ' between a key and its value; write `{right}`")


def _misindented(lines: list[str]) -> Hint | None:
    """A line whose indentation is that of no line above it."""
    open_levels = {0}
    for line in lines[:-1]:
        if _MARKER.match(line):
            open_levels = {0}
        elif _has_content(line):
            indent, items = _indent(line), re.match(r" *((?:- +)*)", line)
            open_levels = {level for level in open_levels if level <= indent}
            open_levels |= {indent, indent + len(items[1] if items else "")}
    levels = sorted(open_levels)
    now = _indent(lines[-1])
    before = _content_before(lines)
    opens = before is not None and lines[before].split(" #")[0].rstrip().endswith(_OPENING)
    deeper = bisect(levels, now)  # of the levels, the first one that is
    if now in levels or not _has_content(lines[-1]) or (opens and deeper == len(levels)):
        return None
    wanted = " or ".join(str(level) for level in levels[deeper - 1 : deeper + 1])
    spaces = "1 space" if now == 1 else f"{now} spaces"
    message = f"this line begins with {spaces}, and no line above it does; write {wanted}"
    return Hint(Place(len(lines), now + 1), message)


def _content_before(lines: list[str]) -> int | None:
    return next((i for i in reversed(range(len(lines) - 1)) if _has_content(lines[i])), None)


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


_GENERAL = (
    ("a tab cannot indent", "; use spaces"),
    ("mapping values are not allowed", "; check the indentation, or quote a value that has ': '"),
    ("while scanning a quoted scalar", "; close the quote"),
    ("flow sequence", "; close the list with ]"),
    ("flow mapping", "; close the mapping with }"),
    ("unknown anchor", "; define it with & before, or quote the value that begins with *"),
    ("invalid Unicode character escape", "; write the character itself"),
    ("expected any YAML value", "; quote a number that is longer than 64 bits"),
    ("cannot start any token", "; indent with spaces, or quote a value that begins with @ ` %"),
)


def _general(what: str) -> str:
    """What to do about a syntax error, where the message alone does not tell."""
    return next((hint for sign, hint in _GENERAL if sign in what), "; check the indentation")
