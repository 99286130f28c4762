"""JSON Schema violations -> one sentence per actual mistake: what is wrong and what to do.

A validator reports keywords; a user wants the key that was mistyped. One mistake can break several
keywords (a misspelt `modelRef` is an unknown field and a missing one): it is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.exclusion import (
    exclusion_texts,
    models_fields,
)
from reconciler.foreign.schema import is_foreign
from reconciler.source.misplaced import Intended, intended, misspelt
from reconciler.source.places import field_path
from reconciler.source.suggest import closest
from reconciler.source.value_text import sentence

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
    excluded = _excluded_field(errors, content)
    meant = set(_intended_fields(validator, errors, excluded))
    mistakes = list(_exclusion(validator, errors, content, meant))
    for error in errors:
        if not _is_exclusion(error) and not _is_consequence(error, meant):
            mistakes += _mistakes(validator, error, excluded)
        if len(mistakes) > MAX_MISTAKES:
            more = Mistake("Schema", "", f"more than {MAX_MISTAKES} mistakes; fix the others first")
            return (*mistakes[:MAX_MISTAKES], more)
    return tuple(mistakes)


def _intended_fields(
    validator: KindValidator, errors: list[Violation], excluded: str
) -> Iterator[tuple[str | int, ...]]:
    """The fields that misspelt keys were meant to be."""
    for error in errors:
        if error.keyword == "additionalProperties":
            for wrong in error.details["unexpected"][:MAX_MISTAKES]:
                for right in _intended_field(validator, error, wrong, excluded).fields:
                    yield from (right[:end] for end in range(1, len(right) + 1))


def _intended_field(
    validator: KindValidator, error: Violation, name: str, excluded: str
) -> Intended:
    """What an unknown field of a mapping was meant to be."""
    known, there = _fields(validator, error), error.instance
    if not isinstance(there, dict) or _is_option(error):
        return misspelt(name, known, error.path)
    known = [field for field in known if field != excluded or error.path != ("spec",)]
    kind = validator.schema["properties"]["kind"]["const"]
    meant = intended(kind, error.path, name, there[name], known)
    right = meant.fields[0][-1] if len(meant.fields) == 1 else None
    if right in there and meant.fields[0][:-1] == error.path:
        return Intended(f"no such field, and {right} is set; remove this one", meant.fields)
    return meant


def _excluded_field(errors: list[Violation], content: Mapping[str, Any]) -> str:
    """The field that what else is written excludes, where two exclude each other."""
    rule = next((error for error in errors if _is_exclusion(error)), None)
    spec = content.get("spec")
    serves_many = (
        "then" in rule.schema_path if rule else isinstance(spec, dict) and "models" in spec
    )
    return models_fields(serves_many=serves_many)[1]


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
    return not {"then", "else"}.isdisjoint(path) and not _is_option(error)


def _is_lacking(error: Violation) -> bool:
    return error.keyword == "required" and _is_exclusion(error)


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
    if not serves_many:
        branch = _schema_of(validator, rule.schema_path[: rule.schema_path.index("else") + 1])
        many = branch.get("if", {}).get("properties", {}).get("runtime", {}).get("enum", [])
    texts = exclusion_texts(
        spec.get("runtime"),
        serves_many=serves_many,
        has_right=("spec", right) in meant or not any(map(_is_lacking, errors)),
        has_wrong=wrong in spec,
        many=many,
    )
    if texts:
        yield Mistake("ModelsRule", "spec", texts)


def _mistakes(validator: KindValidator, error: Violation, excluded: str) -> Iterator[Mistake]:
    kind = error.keyword
    rule = _rule_of(error)
    field = field_path(error.path)
    details = error.details
    if kind == "additionalProperties":
        for name in details["unexpected"][: MAX_MISTAKES + 1]:
            meant = _intended_field(validator, error, name, excluded)
            yield Mistake(rule, _below(field, name), meant.message, not meant.fields)
    elif kind == "required":
        name = details["property"]
        yield Mistake(rule, field, f'"{name}" is missing here; add it')
    else:
        text = _by_name(validator, error) or _sentence(validator, error)
        yield Mistake(rule, field, text, kind == "enum" and _is_strange(error))


def _sentence(validator: KindValidator, error: Violation) -> str:
    schema = _schema_of(validator, error.schema_path)
    text = sentence(error.keyword, error.instance, error.details, schema, validator.schema)
    return text or f"{error.message}; see the schema"


def _is_strange(error: Violation) -> bool:
    """Whether the word is near to none of those that may be there."""
    word, options = error.instance, map(str, error.details["options"])
    return isinstance(word, str) and closest(word, options) is None


def _by_name(validator: KindValidator, error: Violation) -> str | None:
    """`modelRef: {name: x}`, as references are written in other groups' documents."""
    wish = _schema_of(validator, error.schema_path).get("pattern")
    if error.keyword != "type" or wish is None:
        return None
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
    """The fields of ours that the object with the error may have."""
    properties = _schema_of(validator, error.schema_path).get("properties", {})
    return sorted(name for name, field in properties.items() if not is_foreign(field))


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
