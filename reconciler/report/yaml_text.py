"""Plain data -> YAML in block style, the same for every reader of YAML 1.1 and 1.2. Pure.

Only for what JSON can hold: mappings with text keys, lists, text, numbers, truth values and None.
Mappings keep their order. Text that any reader could take for something else stands in quotes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence


def yaml_document(value: object) -> str:
    """One document, with a newline at its end."""
    return "\n".join(_lines(value)) + "\n"


def yaml_documents(values: Iterable[object]) -> str:
    """Several documents in one file, `---` between them."""
    return "---\n".join(yaml_document(value) for value in values)


def _lines(value: object) -> Iterator[str]:
    match value:
        case Mapping() if value:
            for key, item in value.items():
                yield from _entry(f"{scalar(str(key))}:", item)
        case list() | tuple() if value:
            for item in value:
                # `- ` is as wide as the indent, so the lines of a mapping follow its first one.
                for number, line in enumerate(_lines(item)):
                    yield f"{'  ' if number else '- '}{line}"
        case _:
            yield scalar(value)


def _entry(key: str, item: object) -> Iterator[str]:
    if not (item and isinstance(item, Mapping | Sequence) and not isinstance(item, str)):
        yield f"{key} {scalar(item)}"
        return
    indent = "  " if isinstance(item, Mapping) else ""
    yield key
    for line in _lines(item):
        yield f"{indent}{line}"


def scalar(value: object) -> str:
    """What stands on one line: text, a number, a truth value, null, or an empty collection."""
    match value:
        case str():
            return value if _is_plain(value) else _quoted(value)
        case Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is no number that JSON knows")
        case None | bool() | int() | float():
            return json.dumps(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text.lower() not in _WORDS


def _quoted(text: str) -> str:
    """JSON's escapes are YAML's too. Characters beyond the first plane stay as they are: a pair of
    escapes would be two wrong characters in YAML."""
    plain = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


# Begins with a letter, so it is no number and no date; has no `: `, no ` #`, no trailing `:`.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9][A-Za-z0-9_./@+-]*)*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # of YAML 1.1 and 1.2
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
