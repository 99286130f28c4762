"""One field and what is in it, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.report.field_entries import FieldEntry
from reconciler.report.terminal import hanging

_INDENT = 2


def field_text(kind: str, entry: FieldEntry, parts: Iterable[FieldEntry], width: int | None) -> str:
    """For a terminal of that width; None: lines have no end. Ends in a newline."""
    lines = _lines(kind, entry, parts)
    fitting = (part for line in lines for part in hanging(line, width, _indent_of(line) + _INDENT))
    return "\n".join(fitting) + "\n"


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def field_json(entry: FieldEntry, parts: Iterable[FieldEntry]) -> dict[str, Any]:
    """`{field, value, description, change, runtimes, fields}`; `change` is null where its parts
    say it, and `runtimes` where all are meant."""
    return {
        "field": entry.path,
        "value": entry.value.replace("`", ""),
        "description": entry.description,
        "change": entry.change or None,
        "runtimes": list(entry.runtimes) or None,
        "fields": [part.path for part in parts],
    }


def _lines(kind: str, entry: FieldEntry, parts: Iterable[FieldEntry]) -> Iterator[str]:
    yield f"{kind}.{entry.path}: {entry.value.replace('`', '')}"
    yield f"  {entry.description}"
    if entry.change:
        yield f"  a change: {entry.change}"
    if entry.runtimes:
        yield f"  runtimes: {', '.join(entry.runtimes)}"
    for part in parts:
        yield f"  {part.path}: {part.value.replace('`', '')}"
        yield f"    {part.description}"
