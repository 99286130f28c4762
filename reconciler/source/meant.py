"""What was probably meant by a value that its schema refuses, as it is written in YAML. Pure.

Spellings are tried, and the first that the schema accepts is the answer: what a message says to
write is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MOST_NAMED = 6
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9._/-]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(?:i?B?|bytes?)", re.IGNORECASE)
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_UNITS_OF_TIME: Mapping[str, tuple[int, str]] = {
    "": (1, "s"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), (1, "s")),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), (1, "m")),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), (1, "h")),
    **dict.fromkeys(("d", "day", "days"), (24, "h")),
    **dict.fromkeys(("ms", "msec", "milliseconds"), (1, "ms")),
}
_TRUTH = {
    **dict.fromkeys(("yes", "on", "true"), "true"),
    **dict.fromkeys(("no", "off", "false"), "false"),
}


def meant(value: object, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    """What to write instead of a value; None: nothing is near. `root` has the $defs that the
    schema refers to."""
    for choice in _choices(schema, root):
        kind = choice.get("type")
        match kind:
            case "array":
                written = _as_list(value, choice, root)
            case "object":
                written = _as_mapping(value, choice)
            case "boolean":
                written = _TRUTH.get(value.lower()) if isinstance(value, str) else None
            case "integer" | "number":
                written = _as_number(value, whole=kind == "integer")
            case _:
                written = next((t for t in _texts(value) if _accepts(choice, t)), None)
        if written:
            return written
    return None


def _choices(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in schema:
        yield from _choices(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    for choice in schema.get("anyOf", ()):
        yield from _choices(choice, root)
    if "type" in schema:
        yield schema


def _as_number(value: object, *, whole: bool) -> str | None:
    """`"8192"`, `8k`, `128K`, `8,192`: contexts are counted in multiples of 1024."""
    if not isinstance(value, str):
        return None
    text = re.sub(r"(?<=[0-9])[,_](?=[0-9]{3})", "", value.strip())
    text = re.sub(r"^(-?)0+(?=[0-9])", r"\1", text)
    if re.fullmatch(r"-?[0-9]{1,18}" + ("" if whole else r"(\.[0-9]+)?"), text):
        return f"{text} without quotes" if text == value else text
    thousands = re.fullmatch(r"([0-9]{1,6})\s*[kK]i?", text)
    return str(int(thousands[1]) * 1024) if thousands and whole else None


def _texts(value: object) -> Iterator[str]:
    """Other spellings of a text: of a size, a duration, a digest and a name."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
        if isinstance(value, str):
            yield value
    text = str(value).strip()
    if size := _SIZE.fullmatch(text):
        yield f"{size[1]}{size[2].upper()}i"
    time = _TIME.fullmatch(text)
    if time and time[2].lower() in _UNITS_OF_TIME:
        times, unit = _UNITS_OF_TIME[time[2].lower()]
        yield f"{float(time[1]) * times:g}{unit}"
    if isinstance(value, str):
        yield text.lower().removeprefix("sha256:")
        if "/" not in text:
            yield re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")


def _accepts(schema: Mapping[str, Any], text: str) -> bool:
    """Texts without a pattern are all valid, so nothing is known of what was meant."""
    pattern = schema.get("pattern")
    if schema.get("const") == text or text in schema.get("enum", ()):
        return True
    return pattern is not None and re.search(pattern, text) is not None


def _as_list(value: object, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    items = next(_choices(schema.get("items", {}), root), {})
    if items.get("type") == "object":
        return f"a list of mappings with {_fields(items)}, each behind `- `"
    parts = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else []
    if isinstance(value, dict) and len(value) <= _MOST_NAMED and items.get("type") == "string":
        parts = [str(key) for key in value]
    return f"[{', '.join(map(_flow, parts))}]" if parts and all(parts) else None


def _as_mapping(value: object, schema: Mapping[str, Any]) -> str | None:
    names = schema.get("properties", {})
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return "it without `- `" if len(value) == 1 else None
    return f"{_fields(schema)} below it" if names else None


def _fields(schema: Mapping[str, Any]) -> str:
    """Those of a mapping, as a sentence has them; of many only the required ones."""
    names = sorted(schema.get("properties", {}))
    shown = names if len(names) <= _MOST_NAMED else schema.get("required", names)[:_MOST_NAMED]
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def _flow(word: str) -> str:
    """A text within [ ] as YAML reads it back."""
    return word if _PLAIN.fullmatch(word) and word.lower() not in _TRUTH else json.dumps(word)
