"""JSON as it is sent, stored and annotated. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_MOST_LEVELS = 200  # orjson reads 1,024 and writes 254; an API server stores 10,000
_MOST_STORED = 10_000  # what is deeper is no object of a server
_TOO_DEEP = "depth limit exceeded"  # orjson's words
_MARK = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]')  # also a text without end: it is read once


def to_json(value: object, *, sort: bool = False) -> bytes:
    """Serialize. Numbers of more than 64 bits, which orjson refuses, are written anyway: the API
    server decides about them. So are more than 254 levels, as `from_json` reads most of them: null
    replaces what is below 200. `sort`: by keys."""
    try:
        options = orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if sort else 0)
        return orjson.dumps(value, option=options)
    except TypeError:
        cut = _cut(value, _MOST_LEVELS)
        return json.dumps(cut, sort_keys=sort, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse an API server's JSON. An object nested too deep would make its whole list unreadable,
    so null replaces what is below 200 levels. Raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if error.msg != _TOO_DEEP:
            raise
        return orjson.loads(_shallow(text))


def _cut(value: object, levels: int) -> object:
    if isinstance(value, dict):
        return {k: _cut(item, levels - 1) for k, item in value.items()} if levels else None
    if isinstance(value, list | tuple):
        return [_cut(item, levels - 1) for item in value] if levels else None
    return value


def _shallow(text: bytes) -> bytes:
    parts: list[bytes] = []
    depth = kept = 0
    for mark in _MARK.finditer(text):
        if mark[0] in b"[{":
            depth += 1
            if depth > _MOST_STORED:
                raise ValueError(f"nested deeper than {_MOST_STORED:,} levels")
            if depth == _MOST_LEVELS + 1:
                parts.append(text[kept : mark.start()])
        elif mark[0] in b"]}":
            depth -= 1
            if depth == _MOST_LEVELS:
                parts.append(b"null")
                kept = mark.end()
    return b"".join((*parts, text[kept:]))
