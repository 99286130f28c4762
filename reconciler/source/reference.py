"""The reference implementation of JSON Schema, with results as `Violation`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from reconciler.source.violation import Violation


class ReferenceCheck:
    """A schema checked by `jsonschema`: several times slower, available on more machines."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._validator = _Validator(schema)

    def is_valid(self, content: object) -> bool:
        return bool(self._validator.is_valid(content))

    def violations(self, content: object) -> Iterable[Violation]:
        incomplete = set()
        for error in self._validator.iter_errors(content):
            place = (tuple(error.absolute_path), tuple(error.absolute_schema_path))
            if error.validator == "required":  # one error for each missing field, without its name
                names = [] if place in incomplete else _missing(error)
                incomplete.add(place)
                for name in names:
                    yield _violation(error, {"property": name})
            else:
                yield _violation(error, _details(error))


def schema_mistake(schema: dict[str, Any]) -> str | None:
    """Why the 2020-12 metaschema refuses a schema; None if it is valid."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        return f"{where or 'the document'}: {error.message}"
    return None


def _pattern(
    _validator: object, pattern: str, instance: object, _schema: object
) -> Iterator[ValidationError]:
    """JSON Schema's `$` is the end of the text; Python's also matches before a final newline."""
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    wanted = pattern[:-1] + r"\Z" if ends else pattern
    if isinstance(instance, str) and not re.search(wanted, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]


def _violation(error: ValidationError, details: Mapping[str, Any]) -> Violation:
    return Violation(
        str(error.validator or "falseSchema"),
        tuple(error.absolute_path),
        tuple(error.absolute_schema_path),
        error.instance,
        details,
        error.message,
    )


def _missing(error: ValidationError) -> list[str]:
    return [name for name in _names(error.validator_value) if name not in _names(error.instance)]


def _unexpected(error: ValidationError) -> Mapping[str, Any]:
    schema = error.schema if isinstance(error.schema, dict) else {}
    known = schema.get("properties", {})
    return {"unexpected": [name for name in _names(error.instance) if name not in known]}


def _names(value: object) -> list[str]:
    return list(value) if isinstance(value, (dict, list)) else []


def _details(error: ValidationError) -> Mapping[str, Any]:
    make = _DETAILS.get(str(error.validator))
    return make(error) if make else {"limit": error.validator_value}


_DETAILS: Mapping[str, Callable[[ValidationError], Mapping[str, Any]]] = {
    "additionalProperties": _unexpected,
    "const": lambda error: {"expected_value": error.validator_value},
    "enum": lambda error: {"options": error.validator_value},
    "pattern": lambda error: {"pattern": error.validator_value},
    "type": lambda error: {
        "types": [wish] if isinstance(wish := error.validator_value, str) else wish
    },
}
