"""JSON Schema violations -> one sentence per actual mistake: what is wrong and what to do.

A validator reports keywords; a user wants the key that was mistyped. One mistake can break several
keywords (a misspelt `modelRef` is an unknown field and a missing one): it is reported once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.exclusion import (
    NODE_IS_BOTH,
    NODE_IS_NEITHER,
    models_fields,
    models_words,
)
from reconciler.source.misplaced import Intended, intended, misspelt
from reconciler.source.places import field_path
from reconciler.source.suggest import closest, did_you_mean

if TYPE_CHECKING:
    from reconciler.source.validators import KindValidator
    from reconciler.source.violation import Violation

MAX_MISTAKES = 50  # a document; the rest is reported once these are fixed


class Mistake(NamedTuple):
    """A violation in one document, before its line is known.

    `is_newer`: a later version of this program may know the field or value; nothing of this version
    is near enough to call it a misspelling.
    """

    rule: str
    field: str
    message: str
    is_newer: bool = False


def explain(validator: KindValidator, content: dict[str, Any]) -> tuple[Mistake, ...]:
    """Every mistake of a document that its kind's schema refuses."""
    errors = list(validator.violations(content))
    meant = set(_intended_fields(validator, errors))
    mistakes = list(_exclusion(validator, errors, content, meant))
    for error in errors:
        if not _is_exclusion(error) and not _is_consequence(error, meant):
            mistakes += _mistakes(validator, error)
        if len(mistakes) > MAX_MISTAKES:
            more = Mistake("Schema", "", f"more than {MAX_MISTAKES} mistakes; fix the others first")
            return (*mistakes[:MAX_MISTAKES], more)
    return tuple(mistakes)


def _intended_fields(
    validator: KindValidator, errors: list[Violation]
) -> Iterator[tuple[str | int, ...]]:
    """The fields that misspelt keys were meant to be."""
    for error in errors:
        if error.keyword == "additionalProperties":
            for wrong in error.details["unexpected"][:MAX_MISTAKES]:
                for right in _intended(validator, error, wrong).fields:
                    yield from (right[:end] for end in range(1, len(right) + 1))


def _intended(validator: KindValidator, error: Violation, name: str) -> Intended:
    known = _fields(validator, error)
    if _is_option(error):
        return misspelt(name, known, error.path)
    kind = validator.schema["properties"]["kind"]["const"]
    inside = error.instance[name] if isinstance(error.instance, dict) else None
    return intended(kind, error.path, name, inside, known)


def _is_consequence(error: Violation, meant: set[tuple[str | int, ...]]) -> bool:
    """Whether the error follows from another: a key is missing because it is misspelt, or a rule
    applies to the keys of an object that has none."""
    path = error.path
    if error.keyword == "required":
        return (*path, error.details["property"]) in meant
    if error.keyword == "oneOf":
        return not isinstance(error.instance, dict) or any((*path, name) in meant for name in _ONE)
    return False


_ONE = ("agent", "kubernetes")  # FleetNode.spec is the one place where the schema has a oneOf


def _is_exclusion(error: Violation) -> bool:
    """Whether it is the rule of modelRef and models[]. The other branches concern
    runtimeOptions."""
    path = error.schema_path
    return "allOf" in path and not {"then", "else"}.isdisjoint(path) and not _is_option(error)


def _is_option(error: Violation) -> bool:
    return error.path[:2] == ("spec", "runtimeOptions")


def _exclusion(
    validator: KindValidator,
    errors: list[Violation],
    content: dict[str, Any],
    meant: set[tuple[str | int, ...]],
) -> Iterator[Mistake]:
    rule = next((error for error in errors if _is_exclusion(error)), None)
    runtime_is_wrong = any(error.path == ("spec", "runtime") for error in errors)
    if rule is None or runtime_is_wrong or ("spec", "runtime") in meant:
        return
    spec = content["spec"]
    serves_many = "then" in rule.schema_path
    right, wrong = models_fields(serves_many=serves_many)
    many: list[str] = []
    if not serves_many and "else" in rule.schema_path:
        branch = _schema_of(validator, rule.schema_path[: rule.schema_path.index("else") + 1])
        many = branch.get("if", {}).get("properties", {}).get("runtime", {}).get("enum", [])
    words = models_words(
        spec.get("runtime"),
        serves_many=serves_many,
        has_right=right in spec or ("spec", right) in meant,
        has_wrong=wrong in spec,
        many=many,
    )
    if words:
        yield Mistake("ModelsRule", "spec", words)


def _mistakes(validator: KindValidator, error: Violation) -> Iterator[Mistake]:
    kind = error.keyword
    rule = _rule_of(error)
    field = field_path(error.path)
    details = error.details
    if kind == "additionalProperties":
        for name in details["unexpected"][: MAX_MISTAKES + 1]:
            meant = _intended(validator, error, name)
            yield Mistake(rule, _below(field, name), meant.message, not meant.fields)
    elif kind == "required":
        name = details["property"]
        yield Mistake(rule, field, f'"{name}" is missing here; add it')
    elif kind == "anyOf":
        yield Mistake(
            rule, field, _any_of(error.instance, _schema_of(validator, error.schema_path)["anyOf"])
        )
    elif kind == "type" and (wish := _schema_of(validator, error.schema_path).get("pattern")):
        yield Mistake(
            rule, field, _by_name(error, wish) or _pattern(error.instance, {"pattern": wish})
        )
    elif kind == "enum":
        word, options = error.instance, list(map(str, details["options"]))
        is_newer = isinstance(word, str) and closest(word, options) is None
        yield Mistake(rule, field, _enum(word, options), is_newer)
    elif kind in _SENTENCES:
        yield Mistake(rule, field, _SENTENCES[kind](error.instance, details))
    else:
        yield Mistake(rule, field, f"{error.message}; see the schema")


def _by_name(error: Violation, wish: str) -> str | None:
    """`modelRef: {name: x}`, as references are written in other groups' documents."""
    name = error.instance.get("name") if isinstance(error.instance, dict) else None
    if not isinstance(name, str) or not re.search(wish, name):
        return None
    last = error.path[-1]
    written = f"{last}: {name}" if isinstance(last, str) else name
    return f"a reference is just the name here; write `{written}`"


def _rule_of(error: Violation) -> str:
    """Some fields have a rule of their own, listed in the table of rules."""
    path = error.path
    if _is_option(error):
        return "RuntimeOptions"
    if path == ("spec", "defaultRuntime"):
        return "DefaultRuntime"
    if path[:2] == ("spec", "models") and path[3:] == ("name",) and error.keyword == "pattern":
        return "NameNotRoutable"
    return "Schema"


def _fields(validator: KindValidator, error: Violation) -> list[str]:
    """The fields that the object with the error may have."""
    return sorted(_schema_of(validator, error.schema_path).get("properties", {}))


def _schema_of(validator: KindValidator, keyword: tuple[str | int, ...]) -> dict[str, Any]:
    """The schema that contains the keyword at a path; the path may lead through references."""
    node: Any = validator.schema
    for i, part in enumerate(keyword):
        while isinstance(node, dict) and part not in node and "$ref" in node:
            target = tuple(node["$ref"].removeprefix("#/").split("/"))
            node = _schema_of(validator, target)[target[-1]]
        if i == len(keyword) - 1:
            break
        node = node[part]
    assert isinstance(node, dict), "a keyword is part of a schema"
    return node


def _below(field: str, name: str) -> str:
    step = field_path([name])
    return f"{field}.{step}" if field and not step.startswith("[") else field + step


def _type(value: object, details: Mapping[str, Any]) -> str:
    types = details["types"]
    wanted = _listed([_TYPE_WORDS[name] for name in types])
    if value is None:
        return f"is empty; write {wanted}, or remove the line"
    if "string" in types and isinstance(value, (bool, int, float)):
        return f"expected {wanted}, not {_shown(value)}; put it in quotes"
    if isinstance(value, str):
        meant = _unquoted(value, types)
        hint = f"; write {meant}" if meant else ""
        return f"expected {wanted}, not the text {_shown(value)}{hint}"
    return f"expected {wanted}, not {_shown(value)}"


def _unquoted(text: str, types: list[str]) -> str | None:
    """The intended value of a number in quotes, or of a truth value of YAML 1.1."""
    if "boolean" in types and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    is_number = re.fullmatch(r"-?[0-9]{1,18}" + (r"(\.[0-9]+)?" if "number" in types else ""), text)
    return f"{text} without quotes" if is_number and {"integer", "number"} & set(types) else None


_TRUTH = {
    **dict.fromkeys(("yes", "on", "true"), "true"),
    **dict.fromkeys(("no", "off", "false"), "false"),
}
_TYPE_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}


def _any_of(value: object, alternatives: list[dict[str, Any]]) -> str:
    """All alternatives in one sentence; the schema has them for sizes, `auto` and `unified`."""
    wanted = list(dict.fromkeys(_wishes(alternatives)))
    if SIZE in wanted:
        wanted = [words for words in wanted if words != _TYPE_WORDS["integer"]]
    return f"{_shown(value)} is not {_listed(wanted)}"


def _wishes(alternatives: list[dict[str, Any]]) -> Iterator[str]:
    for schema in alternatives:
        match schema:
            case {"anyOf": inner}:
                yield from _wishes(inner)
            case {"const": constant}:
                yield _shown(constant)
            case {"pattern": pattern}:
                yield _pattern_words(pattern)
            case {"type": "boolean"}:
                yield from ("true", "false")
            case {"type": str(name)}:
                yield _TYPE_WORDS[name]


def _enum(value: object, options: list[str]) -> str:
    return f"{_shown(value)} is not one of {', '.join(options)}{did_you_mean(value, options)}"


def _pattern(value: object, details: Mapping[str, Any]) -> str:
    if value is None:
        return f"is empty; write {_pattern_words(details['pattern'])}"
    return f"{_shown(value)} is not {_pattern_words(details['pattern'])}"


def _pattern_words(pattern: str) -> str:
    return _PATTERN_WORDS.get(pattern, f"text that matches {pattern}")


SIZE = "a size; write bytes, or a number with Ki, Mi, Gi or Ti, such as 12Gi"
_PATTERN_WORDS = {
    r"^([0-9]{1,15}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?$": SIZE,
    r"^(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|s|m|h))+$": "a duration; write 30s, 10m or 1h30m",
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": (
        "a name; use lower-case letters, digits, '-' and '.', and begin and end with one of the"
        " first two"
    ),
    r"^[0-9a-f]{64}$": "a sha256; write its 64 hexadecimal digits in lower case",
    r"^(ephemeral|host:(/[A-Za-z0-9_][A-Za-z0-9._-]*)+"
    r"|claim:[a-z0-9]([-a-z0-9.]*[a-z0-9])?(,RW[OX])?"
    r"|pvc:[0-9]+([KMGTPE]i|[kMGTPE])?(,[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?(,RW[OX])?)$": (
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


def _listed(words: list[str]) -> str:
    return " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:56]}..."'


def _one_of(value: object, _details: Mapping[str, Any]) -> str:
    if isinstance(value, dict) and set(_ONE) <= set(value):
        return NODE_IS_BOTH
    return NODE_IS_NEITHER


_SENTENCES: Mapping[str, Callable[[object, Mapping[str, Any]], str]] = {
    "type": _type,
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
