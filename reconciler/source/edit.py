"""Edits of one document in a file: comments, order and every other byte stay as they are. Pure.

An edit is made in the text, by the places of fields, and then read again: one that says anything
but what was asked is refused, however odd the file is written.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.source import places
from reconciler.source.documents import read_foreign
from reconciler.source.ours import ref_of
from reconciler.source.places import Place

_LINE = re.compile("[^\n\r\x85\u2028\u2029]*(?:\r\n|[\n\r\x85\u2028\u2029]|\\Z)")
_MARKER = re.compile(r"(---|\.\.\.)(?=\s|\Z)")
_COMMENT = re.compile(r"\s*#")


class NotEditable(ValueError):
    """The file is written in a way that only its author can change safely."""


def other_kind(data: bytes, document: int, ref: ObjectRef) -> str | None:
    """The kind of the document that an object is made of, where it is another one: a ModelPool is
    more than the service that becomes of it. Raises NotEditable."""
    content = _content(data)[document]
    if not isinstance(content, dict) or ref_of(content) in (None, ref):
        return None
    return str(content["kind"])


def with_switch(data: bytes, document: int, key: str, *, on: bool) -> bytes:
    """The file with `spec.KEY` of one of its documents true, or not true; `document` counts from 0.
    Raises NotEditable."""
    before = _content(data)
    spec = before[document].get("spec")
    if not isinstance(spec, dict):
        raise NotEditable
    if bool(spec.get(key)) == on:
        return data
    edited = _switched(data, document, key, on=on)
    wanted, found = copy.deepcopy(before), _content(edited)
    for content in (wanted, found):
        state = content[document]["spec"].pop(key, False)
    if state is not on or found != wanted:
        raise NotEditable
    return edited


def without_document(data: bytes, document: int) -> bytes | None:
    """The file without one of its documents and the comments at it. None: nothing else is in it.
    Raises NotEditable."""
    before = _content(data)
    rest = [content for index, content in enumerate(before) if index != document]
    if not any(content is not None for content in rest):
        return None
    lines = _lines(_text(data))
    begin, end = _extent(lines, places.segments(_text(data))[document].line - 1)
    edited = "".join([*lines[:begin], *lines[end:]]).encode()
    if _without_nothing(_content(edited)) != _without_nothing(rest):
        raise NotEditable
    return edited


def _content(data: bytes) -> list[Any]:
    try:
        return read_foreign(data)
    except ValueError as error:
        raise NotEditable from error


def _without_nothing(contents: Sequence[Any]) -> list[Any]:
    return [content for content in contents if content is not None]


def _text(data: bytes) -> str:
    return data.decode()


def _lines(text: str) -> list[str]:
    """Each with its break, counted as the places of fields are."""
    return [line for line in _LINE.findall(text) if line]


def _switched(data: bytes, document: int, key: str, *, on: bool) -> bytes:
    lines, fields = _lines(_text(data)), places.locate(_text(data))[document].fields
    if place := fields.get(f"spec.{key}"):
        _set(lines, place, key, on=on)
        return "".join(lines).encode()
    spec = fields.get("spec")
    child = next((at for field, at in fields.items() if field.startswith("spec.")), None)
    if spec is None or child is None:
        raise NotEditable
    if child.line > spec.line and not _is_flow(lines, spec, child):
        opening = lines[spec.line - 1]
        end = opening[len(opening.rstrip("\r\n\x85\u2028\u2029")) :]
        lines.insert(spec.line, f"{' ' * (child.column - 1)}{key}: true{end}")
    else:
        line, at = lines[child.line - 1], child.column - 1
        name = f'"{key}"' if line[at] == '"' else key  # as in JSON
        lines[child.line - 1] = f"{line[:at]}{name}: true, {line[at:]}"
    return "".join(lines).encode()


def _is_flow(lines: list[str], spec: Place, child: Place) -> bool:
    """Whether a brace opens before the first field."""
    between = "".join(lines[spec.line - 1 : child.line - 1]) + lines[child.line - 1][: child.column]
    return "{" in re.sub(r"#.*", "", between)


def _set(lines: list[str], place: Place, key: str, *, on: bool) -> None:
    """Change a field that is there. What `with_switch` wrote goes as it came."""
    line, at = lines[place.line - 1], place.column - 1
    written = re.match(rf"""(?P<name>["']?{key}["']?: *)(?P<value>\w+)(?P<next>, )?""", line[at:])
    if written is None:
        raise NotEditable
    if not on and line.strip() == f"{key}: true":
        del lines[place.line - 1]
    elif not on and written["next"]:
        lines[place.line - 1] = line[:at] + line[at + written.end() :]
    else:
        value = "true" if on else "false"
        rest = line[at + written.end("value") :]
        lines[place.line - 1] = line[:at] + written["name"] + value + rest


def _extent(lines: list[str], content: int) -> tuple[int, int]:
    """The lines of the document whose content begins on line `content`, from its marker to the next
    one. A comment at the top of a file stays, where an empty line follows it."""
    marked = [i for i, line in enumerate(lines) if _MARKER.match(line)]
    opened = [i for i in marked if i <= content]
    end = next((i for i in marked if i > content and lines[i].startswith("---")), len(lines))
    if opened:
        begin = opened[-1]
        return (begin if lines[begin].startswith("---") else begin + 1), end
    begin = 0
    for index in range(content):
        if not lines[index].strip() and any(map(_COMMENT.match, lines[:index])):
            begin = index + 1
    return begin, end
