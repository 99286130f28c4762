"""A value that its schema refuses -> a sentence: what is wrong with it, and what to write. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.exclusion import NODE_IS_BOTH, NODE_IS_NEITHER
from reconciler.api.meta import SUBDOMAIN
from reconciler.api.model_settings import OVERRIDES
from reconciler.api.speculative import BESIDE, WAYS, WAYS_TO_GUESS
from reconciler.source.meant import meant
from reconciler.source.suggest import did_you_mean


def sentence(
    keyword: str,
    value: object,
    details: Mapping[str, Any],
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
) -> str | None:
    """What is wrong with a value by a keyword of its schema, and what to write. None: no sentence
    is known for the keyword. `root` has the $defs that the schema refers to."""
    if keyword == "type" and "pattern" in schema:
        keyword, details = "pattern", schema
    if keyword not in _SENTENCES:
        return None
    if keyword == "pattern" and _needs_quotes(value, details["pattern"]):
        return f"expected text, not {_shown(value)}; put it in quotes"
    text = _SENTENCES[keyword](value, {**details, "anyOf": schema.get("anyOf", ())})
    written = meant(value, schema, root) if keyword in _OF_SPELLING and value is not None else None
    return f"{text.partition('; ')[0]}; write {written}" if written else text


def _needs_quotes(value: object, pattern: str) -> bool:
    """Whether it is a number, or true or false, and would do as a text: a node named 123."""
    return isinstance(value, (bool, int, float)) and bool(re.search(pattern, _shown(value)))


_OF_SPELLING = frozenset({"type", "pattern", "anyOf"})


def _type(value: object, details: Mapping[str, Any]) -> str:
    types = details["types"]
    wanted = _listed([_TYPE_WORDS[name] for name in types])
    if value is None:
        return f"is empty; write {wanted}, or remove the line"
    if "string" in types and isinstance(value, (bool, int, float)):
        return f"expected {wanted}, not {_shown(value)}; put it in quotes"
    what = "the text " if isinstance(value, str) else ""
    return f"expected {wanted}, not {what}{_shown(value)}"


_TYPE_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _any_of(value: object, details: Mapping[str, Any]) -> str:
    """All alternatives in one sentence; the schema has them for sizes, `auto` and `unified`."""
    wanted = list(dict.fromkeys(_wishes(details["anyOf"])))
    if SIZE in wanted:
        wanted = [kind for kind in wanted if kind != _TYPE_WORDS["integer"]]
    return f"{_shown(value)} is not {_listed(wanted)}"


def _wishes(alternatives: Iterable[dict[str, Any]]) -> Iterator[str]:
    for schema in alternatives:
        match schema:
            case {"anyOf": inner}:
                yield from _wishes(inner)
            case {"const": constant}:
                yield _shown(constant)
            case {"pattern": pattern}:
                yield _pattern_text(pattern)
            case {"type": "boolean"}:
                yield from ("true", "false")
            case {"type": str(name)}:
                yield _TYPE_WORDS[name]


def _enum(value: object, details: Mapping[str, Any]) -> str:
    options = list(map(str, details["options"]))
    return f"{_shown(value)} is not one of {', '.join(options)}{did_you_mean(value, options)}"


def _pattern(value: object, details: Mapping[str, Any]) -> str:
    if value is None:
        return f"is empty; write {_pattern_text(details['pattern'])}"
    return f"{_shown(value)} is not {_pattern_text(details['pattern'])}"


def _pattern_text(pattern: str) -> str:
    return _PATTERN_WORDS.get(pattern, f"text that matches {pattern}")


SIZE = "a size; write bytes, or a number with Ki, Mi, Gi or Ti, such as 12Gi"
_PATTERN_WORDS = {
    r"^(Cluster)?TriggerAuthentication/[a-z0-9.-]{1,253}$": (
        "an authentication of KEDA; write ClusterTriggerAuthentication/NAME or"
        " TriggerAuthentication/NAME"
    ),
    r"^[0-9]{1,4}-[0-9]{1,4}$": "a range of layers such as 0-15",
    OVERRIDES: (
        "an override; write PATTERN=CPU, with no space, no ; and no #, and with = only there"
    ),
    BESIDE: "the name of a file; write NAME.gguf, or its path in the model's repository",
    WAYS: f"what guesses; write {', '.join(WAYS_TO_GUESS)}, or several with a comma between them",
    r"^((?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?$": SIZE,
    r"^(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|s|m|h))+$": "a duration; write 30s, 10m or 1h30m",
    rf"^{SUBDOMAIN}$": (
        "a name; use lower-case letters, digits, '-' and '.', and begin and end with one of the"
        " first two, beside each '.' as well"
    ),
    r"^[0-9a-f]{64}$": "a sha256; write its 64 hexadecimal digits in lower case",
    r"^(ephemeral|host:(/[A-Za-z0-9_][A-Za-z0-9._-]*)+"
    rf"|claim:{SUBDOMAIN}(,RW[OX])?"
    rf"|pvc:[0-9]+([KMGTPE]i|[kMGTPE])?(,{SUBDOMAIN})?(,RW[OX])?)$": (
        "a cache; write ephemeral, host:/models, claim:NAME or pvc:100Gi (,RWX behind the last two"
        " where several nodes can mount the storage)"
    ),
    r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$": "a folder's absolute path; write /models",
    r"^https?://": "a URL; begin it with https://",
    r"^[0-9a-fA-F.:]{2,45}$": "an IP address",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a variable's name; use letters, digits and _",
    r"^\s*(>=|<=|==|!=|~=|<|>)\s*[0-9]+(\.[0-9]+)*"
    r"(\s*,\s*(>=|<=|==|!=|~=|<|>)\s*[0-9]+(\.[0-9]+)*)*\s*$": (
        'a range of versions; write ">=0.3" or ">=0.3,<1"'
    ),
}


def _listed(items: list[str]) -> str:
    return " or ".join(items) if len(items) < 3 else f"{', '.join(items[:-1])} or {items[-1]}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:56]}..."'


def _one_of(value: object, _details: Mapping[str, Any]) -> str:
    if isinstance(value, dict) and {"agent", "kubernetes"} <= set(value):
        return NODE_IS_BOTH
    return NODE_IS_NEITHER


_SENTENCES: Mapping[str, Callable[[object, Mapping[str, Any]], str]] = {
    "type": _type,
    "anyOf": _any_of,
    "enum": _enum,
    "oneOf": _one_of,
    "pattern": _pattern,
    "const": lambda value, d: f"{_shown(value)} is wrong here; write {_shown(d['expected_value'])}",
    "minimum": lambda value, d: f"{_shown(value)} is too small; write {d['limit']} or more",
    "maximum": lambda value, d: f"{_shown(value)} is too large; write {d['limit']} or less",
    "exclusiveMinimum": lambda value, d: f"{_shown(value)} is too small; write over {d['limit']}",
    "exclusiveMaximum": lambda value, d: f"{_shown(value)} is too large; write under {d['limit']}",
    "minLength": lambda _value, _d: "is empty; write it, or remove the line",
    "maxLength": lambda _value, d: f"is longer than {d['limit']} characters; shorten it",
    "minItems": lambda _value, d: f"the list needs at least {d['limit']}; add one",
    "maxItems": lambda _value, d: f"the list has more than {d['limit']} items; remove some",
    "uniqueItems": lambda _value, _d: "the list has an item twice; remove one of the two",
    "falseSchema": lambda _value, _d: "does not belong here; remove it",
}
