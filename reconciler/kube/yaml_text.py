"""Manifests as YAML that every parser reads the same way, in the order of their keys. Pure.

Kubernetes' parsers follow YAML 1.1, where a plain `yes` or `1:20` is not text: anything but a
harmless word is quoted, as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_HARMLESS = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*")
_NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
# Printable, and the last line has text and a newline: parsers drop further newlines.
_LINES = re.compile(r"(?:[\x20-\x7e]*\n)*[\x20-\x7e]*[\x21-\x7e]\n")
_BLANK_END = re.compile(r" $", re.MULTILINE)


def dump(manifest: Mapping[str, Any]) -> str:
    """One document."""
    return "\n".join(_mapping(manifest, "")) + "\n"


def dump_all(manifests: Iterable[Mapping[str, Any]]) -> str:
    """A stream of documents."""
    return "---\n".join(dump(manifest) for manifest in manifests)


def _mapping(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        head = f"{indent}{_text(key)}:"
        if isinstance(value, Mapping) and value:
            yield head
            yield from _mapping(value, indent + "  ")
        elif isinstance(value, list | tuple) and value:
            yield head
            yield from _sequence(value, indent + "  ")
        elif isinstance(value, str) and _is_block(value):
            yield f"{head} |"
            yield from (f"{indent}  {line}".rstrip() for line in value.splitlines())
        else:
            yield f"{head} {_scalar(value)}"


def _sequence(values: Iterable[Any], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping) and value:
            first, *others = _mapping(value, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from others
        else:
            yield f"{indent}- {_scalar(value)}"


def _is_block(value: str) -> bool:
    is_plain = bool(_LINES.fullmatch(value)) and not _BLANK_END.search(value)
    return is_plain and not value.startswith((" ", "\n"))


def _scalar(value: object) -> str:
    return _text(value) if isinstance(value, str) else _json(value)


def _text(value: str) -> str:
    if _HARMLESS.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return _json(value)


def _json(value: object) -> str:
    """JSON is YAML, except for characters that YAML requires to be escaped."""
    quoted = json.dumps(value, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda node: f"\\u{ord(node[0]):04x}", quoted)
