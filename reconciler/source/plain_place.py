"""The positions of fields without parsing: many warnings about many objects are common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.source.places import Place

_KEY = re.compile(r"[A-Za-z0-9_$-]+")
_MARKER = re.compile(r"^(---|\.\.\.)(?=\s|\Z)", re.MULTILINE)
# A value that ends on its line, and what is inside of which nobody asks for: plain, quoted or in
# brackets. Two that a plain one may not hold begin a comment, and a key.
_PLAIN = (
    r"(?:[A-Za-z0-9_./$+^~(=<\\]|-(?=[^\s,\[\]{}]))(?:[^\s:#]|:(?=\S)|(?<=\S)#|[ ]+(?=[^\s#]))*"
)
_QUOTED = r"\"[^\"\\]*\"|'[^']*'"
_VALUE = rf"(?:{_PLAIN}|{_QUOTED}|[\[{{](?:[^\"'#&*!|>]|{_QUOTED})*[\]}}])"
_WORDS = frozenset({"true", "false", "null"})  # as keys they are no text
_LINE = re.compile(
    rf"(?P<indent> *)(?P<dash>- +)?(?:(?P<key>[A-Za-z][A-Za-z0-9_$./-]*):(?P<value> +{_VALUE})?"
    rf"|(?P<item>{_VALUE}))? *(?: #.*)?"
)


def plain_key(text: str, first_line: int, key: str) -> Place | None:
    """The position of a key of the document itself, whatever it contains; None if only a parser can
    tell."""
    if "\r" in text or not text.isascii() or not _KEY.fullmatch(key):
        return None
    start, end = _document(text, first_line)
    at = re.compile(rf"^{key}:(?=\s)", re.MULTILINE)
    starts = [m.start() for m in at.finditer(text, start, end)]
    if len(starts) != 1:
        return None
    return Place(first_line + text.count("\n", start, starts[0]), 1)


@dataclass(slots=True)
class _Open:
    """A mapping or a list whose fields may follow. `indent` is theirs, once one is there."""

    path: str
    beyond: int  # of what it is the value of
    indent: int | None = None
    items: int | None = None  # of a list, how many there were


def plain_places(text: str, first_line: int) -> Mapping[str, Place]:
    """The positions of all fields of the document that begins on `first_line`; empty if only a
    parser can tell."""
    if "\r" in text or "\t" in text or not text.isascii():
        return {}
    start, end = _document(text, first_line)
    by_path: dict[str, Place] = {}
    for path, place in _walk(text[start:end].split("\n"), first_line):
        if path is None or path in by_path:
            return {}
        by_path[path] = place
    return by_path


def _document(text: str, first_line: int) -> tuple[int, int]:
    """Where the document that begins on this line begins and ends."""
    start = 0
    for _ in range(first_line - 1):
        start = text.find("\n", start) + 1
    marker = _MARKER.search(text, start)
    return start, marker.start() if marker else len(text)


def _walk(lines: list[str], line: int) -> Iterator[tuple[str | None, Place]]:
    """Each field with its position; None ends it, where a line is not as plain as these are."""
    nothing = None, Place(line, 1)
    frames = [_Open("", -1)]
    ended = None  # the indent of a value behind which nothing deeper may come
    for number, text in enumerate(lines, line):
        row = _LINE.fullmatch(text)
        if row is None or (row["key"] or "").lower() in _WORDS:
            yield nothing
            return
        key, item, dash = row["key"], row["item"], row["dash"]
        if key is None and item is None:
            if dash or text.lstrip(" ")[:1] not in ("", "#"):
                yield nothing
                return
            continue
        indent = len(row["indent"])
        frame = _frame(frames, indent, is_item=dash is not None)
        if frame is None or (ended is not None and indent > ended):
            yield nothing
            return
        path = frame.path
        if dash:
            path = f"{path}[{frame.items}]"
            frame.items = (frame.items or 0) + 1
            yield path, Place(number, indent + len(dash) + 1)
            indent += len(dash)
            if key:
                frames.append(_Open(path, indent - len(dash), indent))
        elif key is None:
            yield nothing  # text that goes on from the line above
            return
        if key:
            path = _below(path, key)
            yield path, Place(number, indent + 1)
            if row["value"] is None:
                frames.append(_Open(path, indent))
        ended = None if key and row["value"] is None else indent


def _below(path: str, key: str) -> str:
    """The path of a key, which `field_path` would write so."""
    if not _KEY.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def _frame(frames: list[_Open], indent: int, *, is_item: bool) -> _Open | None:
    """What a line with this indent belongs to; None: to nothing that is plain."""
    while frames:
        top = frames[-1]
        if top.indent is None:
            if indent > top.beyond or (is_item and indent == top.beyond and top.path):
                top.indent, top.items = indent, 0 if is_item else None
                return top
        elif indent == top.indent and is_item == (top.items is not None):
            return top
        elif indent > top.indent:
            return None
        frames.pop()
    return None
