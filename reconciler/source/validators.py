"""The committed JSON Schemas, compiled once per process and only for the kinds in use.

jsonschema-rs checks, in a tenth of the time. The reference implementation, `jsonschema`, replaces
it where it has no wheel, and with FLEET_VALIDATOR=reference.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import reconciler
from reconciler.api.errors import UsageError
from reconciler.api.kinds import schema_file
from reconciler.api.plain_json import parse_json
from reconciler.foreign.schema import document_schema
from reconciler.foreign_kinds import READ
from reconciler.source.violation import Check, Violation

_PACKAGE = Path(reconciler.__file__).parent
_VARIABLE = "FLEET_VALIDATOR"


@dataclass(frozen=True, slots=True)
class KindValidator:
    """One kind's schema and its compiled form."""

    schema: dict[str, Any]
    check: Check

    def is_valid(self, content: object) -> bool:
        return self.check.is_valid(content)

    def violations(self, content: object) -> Iterable[Violation]:
        return self.check.violations(content)


@functools.cache
def validator(kind: str) -> KindValidator:
    """The validator of a kind. Compiling takes about 4 ms, so it is cached. UsageError if
    FLEET_VALIDATOR has another value."""
    if kind in READ:
        schema = document_schema(READ[kind], kind)
    else:
        schema = parse_json(schema_text(schema_file(kind)))
    if _is_reference():
        from reconciler.source.reference import ReferenceCheck

        return KindValidator(schema, ReferenceCheck(schema))
    return KindValidator(schema, _FastCheck(schema))


def _is_reference() -> bool:
    wish = os.environ.get(_VARIABLE, "")
    if wish not in ("", "fast", "reference"):
        raise UsageError(f"{_VARIABLE}={wish}: write reference or fast, or leave it out")
    return wish == "reference" or (not wish and find_spec("jsonschema_rs") is None)


class _FastCheck:
    def __init__(self, schema: dict[str, Any]) -> None:
        from jsonschema_rs import Draft202012Validator

        self._compiled = Draft202012Validator(schema)

    def is_valid(self, content: object) -> bool:
        return self._compiled.is_valid(content)

    def violations(self, content: object) -> Iterable[Violation]:
        for error in self._compiled.iter_errors(content):
            yield Violation(
                error.kind.name,
                tuple(error.instance_path),
                tuple(error.schema_path),
                error.instance,
                error.kind.as_dict(),
                error.message,
            )


def schema_text(name: str) -> str:
    """The text of a committed schema such as `model.json`: from the wheel, else from the
    checkout."""
    shipped = _PACKAGE / "data" / "schemas" / name
    path = shipped if shipped.is_file() else _PACKAGE.parent / "schemas" / name
    return path.read_text(encoding="utf-8")
