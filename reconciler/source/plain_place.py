"""The position of a field without parsing: many warnings about many objects are common."""

from __future__ import annotations

import re

from reconciler.source.places import Place

_KEY = re.compile(r"[A-Za-z0-9_$-]+")
_MARKER = re.compile(r"^(---|\.\.\.)(?=\s|\Z)", re.MULTILINE)
_MANY_LINES = re.compile(r"[\"'\[{|>?]")  # begins a value that may span lines that look like keys


def plain_place(text: str, first_line: int, field: str) -> Place | None:
    """The position of a field such as `spec` or `spec.source` in the document that begins on
    `first_line`; None if only a parser can tell."""
    key, _, child = field.partition(".")
    if "\r" in text or not text.isascii() or not _KEY.fullmatch(key):
        return None
    start = 0
    for _ in range(first_line - 1):
        start = text.find("\n", start) + 1
    marker = _MARKER.search(text, start)
    end = marker.start() if marker else len(text)
    starts = [
        m.start() for m in re.compile(rf"^{key}:(?=\s)", re.MULTILINE).finditer(text, start, end)
    ]
    if len(starts) != 1:
        return None
    line = first_line + text.count("\n", start, starts[0])
    if not child:
        return Place(line, 1)
    if _MANY_LINES.search(text, start, end) or not _KEY.fullmatch(child):
        return None
    return _child_place(text[starts[0] : end].split("\n"), line, child)


def _child_place(lines: list[str], line: int, child: str) -> Place | None:
    """The position of a key one level below the key on the first of these lines, by its
    indentation."""
    if not lines[0].rstrip().endswith(":"):
        return None
    margin = 0
    for offset, text in enumerate(lines[1:], 1):
        plain = text.lstrip(" ")
        if not plain or plain.startswith("#"):
            continue
        indent = len(text) - len(plain)
        margin = margin or indent
        if indent == 0 or plain.startswith(("\t", "- ")):
            return None
        if indent == margin and plain.startswith(f"{child}: "):
            return Place(line + offset, margin + 1)
    return None
