"""What a JSON Schema found -> one sentence a real mistake: what is wrong and what to do.

A validator answers with keywords; a person wants the key that was mistyped. One mistake can break
several keywords (a misspelt `modelRef` is an unknown field and a missing one): it is said once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.exclusion import (
    NODE_IS_BOTH,
    NODE_IS_NEITHER,
    models_fields,
    models_words,
    no_such_field,
)
from reconciler.source.places import field_path
from reconciler.source.suggest import closest, did_you_mean

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

    from reconciler.source.validators import KindValidator

MAX_MISTAKES = 50  # a document; whoever fixes these sees the rest


class Mistake(NamedTuple):
    """A violation in one document, before anybody knows on which line it stands.

    `is_newer`: a later version of this program may know the field or the word; it is near to none
    of this one, so that it is no misspelling.
    """

    rule: str
    field: str
    message: str
    is_newer: bool = False


def explain(validator: KindValidator, content: dict[str, Any]) -> tuple[Mistake, ...]:
    """Every mistake of a document that its kind's schema refuses."""
    errors = list(validator.errors(content))
    meant = set(_meant(validator, errors))
    mistakes = list(_exclusion(validator, errors, content, meant))
    for error in errors:
        if not _is_exclusion(error) and not _is_said_already(error, meant):
            mistakes += _mistakes(validator, error)
        if len(mistakes) > MAX_MISTAKES:
            more = Mistake("Schema", "", f"more than {MAX_MISTAKES} mistakes; fix the others first")
            return (*mistakes[:MAX_MISTAKES], more)
    return tuple(mistakes)


def _meant(
    validator: KindValidator, errors: list[ValidationError]
) -> Iterator[tuple[str | int, ...]]:
    """The fields that misspelt keys were meant to be."""
    for error in errors:
        if error.kind.name == "additionalProperties":
            known = _fields(validator, error)
            for wrong in error.kind.as_dict()["unexpected"][:MAX_MISTAKES]:
                if right := closest(wrong, known):
                    yield (*error.instance_path, right)


def _is_said_already(error: ValidationError, meant: set[tuple[str | int, ...]]) -> bool:
    """A key that is missing because it is misspelt; a rule over the keys of what has none."""
    path = tuple(error.instance_path)
    if error.kind.name == "required":
        return (*path, error.kind.as_dict()["property"]) in meant
    if error.kind.name == "oneOf":
        return not isinstance(error.instance, dict) or any((*path, name) in meant for name in _ONE)
    return False


_ONE = ("agent", "kubernetes")  # FleetNode.spec is the one place where the schema has a oneOf


def _is_exclusion(error: ValidationError) -> bool:
    """Is it the rule of modelRef and models[]? The other branches are about runtimeOptions."""
    path = error.schema_path
    return "allOf" in path and not {"then", "else"}.isdisjoint(path) and not _is_option(error)


def _is_option(error: ValidationError) -> bool:
    return list(error.instance_path[:2]) == ["spec", "runtimeOptions"]


def _exclusion(
    validator: KindValidator,
    errors: list[ValidationError],
    content: dict[str, Any],
    meant: set[tuple[str | int, ...]],
) -> Iterator[Mistake]:
    rule = next((error for error in errors if _is_exclusion(error)), None)
    runtime_is_wrong = any(list(error.instance_path) == ["spec", "runtime"] for error in errors)
    if rule is None or runtime_is_wrong or ("spec", "runtime") in meant:
        return
    spec = content["spec"]
    serves_many = "then" in rule.schema_path
    right, wrong = models_fields(serves_many=serves_many)
    many: list[str] = []
    if not serves_many and "else" in rule.schema_path:
        branch = _node(validator, rule.schema_path[: rule.schema_path.index("else")])
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


def _mistakes(validator: KindValidator, error: ValidationError) -> Iterator[Mistake]:
    kind = error.kind.name
    rule = _rule_of(error)
    field = field_path(error.instance_path)
    details = error.kind.as_dict()
    if kind == "additionalProperties":
        known = _fields(validator, error)
        for name in details["unexpected"][: MAX_MISTAKES + 1]:
            right = closest(name, known)
            words = f'no such field; did you mean "{right}"?' if right else no_such_field(known)
            yield Mistake(rule, _below(field, name), words, right is None)
    elif kind == "required":
        name = details["property"]
        yield Mistake(rule, field, f'"{name}" is missing here; add it')
    elif kind == "anyOf":
        yield Mistake(rule, field, _any_of(error.instance, _node(validator, error.schema_path)))
    elif kind == "type" and (wish := _node(validator, error.schema_path[:-1]).get("pattern")):
        yield Mistake(rule, field, _pattern(error.instance, {"pattern": wish}))
    elif kind == "enum":
        word, options = error.instance, list(map(str, details["options"]))
        is_newer = isinstance(word, str) and closest(word, options) is None
        yield Mistake(rule, field, _enum(word, options), is_newer)
    elif kind in _SENTENCES:
        yield Mistake(rule, field, _SENTENCES[kind](error.instance, details))
    else:
        yield Mistake(rule, field, f"{error.message}; see the schema")


def _rule_of(error: ValidationError) -> str:
    """Some fields have a rule of their own, so that a person finds it in the table."""
    path = list(error.instance_path)
    if _is_option(error):
        return "RuntimeOptions"
    if path == ["spec", "defaultRuntime"]:
        return "DefaultRuntime"
    if path[:2] == ["spec", "models"] and path[3:] == ["name"] and error.kind.name == "pattern":
        return "NameNotRoutable"
    return "Schema"


def _fields(validator: KindValidator, error: ValidationError) -> list[str]:
    """The names that the object knows in which the error stands."""
    return sorted(_node(validator, error.schema_path[:-1]).get("properties", {}))


def _node(validator: KindValidator, path: list[str | int]) -> Any:  # noqa: ANN401  # any JSON
    node: Any = validator.schema
    for part in path:
        node = node[part]
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
    """What somebody meant who wrote a number in quotes, or a truth value of YAML 1.1."""
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
    """Say what every alternative wants; the schema has them for sizes, `auto` and `unified`."""
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
    r"^(ephemeral|claim:[a-z0-9]([-a-z0-9.]*[a-z0-9])?(,RW[OX])?"
    r"|pvc:[0-9]+([KMGTPE]i|[kMGTPE])?(,[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?(,RW[OX])?)$": (
        "a cache; write ephemeral, claim:NAME or pvc:100Gi (,RWX behind it where several nodes can"
        " mount the storage)"
    ),
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
