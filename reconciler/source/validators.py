"""The committed JSON Schemas, compiled once a process and only for the kinds that a fleet uses."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reconciler
from reconciler.api import schema_file

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

_PACKAGE = Path(reconciler.__file__).parent


@dataclass(frozen=True, slots=True)
class KindValidator:
    """One kind's schema, and the compiled form of it."""

    schema: dict[str, Any]
    compiled: Draft202012Validator

    def is_valid(self, content: object) -> bool:
        return self.compiled.is_valid(content)

    def errors(self, content: object) -> Iterable[ValidationError]:
        return self.compiled.iter_errors(content)


@functools.cache
def validator(kind: str) -> KindValidator:
    """The validator of a kind. Compiling takes about 4 ms, so it happens once."""
    from jsonschema_rs import Draft202012Validator

    schema = json.loads(schema_text(schema_file(kind)))
    return KindValidator(schema, Draft202012Validator(schema))


def schema_text(name: str) -> str:
    """The text of a committed schema such as `model.json`: from the wheel, else the checkout."""
    shipped = _PACKAGE / "data" / "schemas" / name
    path = shipped if shipped.is_file() else _PACKAGE.parent / "schemas" / name
    return path.read_text(encoding="utf-8")
