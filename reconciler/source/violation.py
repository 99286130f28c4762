"""What a compiled schema says of a document, whichever implementation compiled it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Violation:
    """A keyword of a schema that a document violates, in JSON Schema's terms.

    `details` are the keyword's values: `property`, `unexpected`, `options`, `limit`, ...
    `schema_path` leads to the keyword, through a `$ref` or from its target.
    """

    keyword: str
    path: tuple[str | int, ...]
    schema_path: tuple[str | int, ...]
    instance: Any
    details: Mapping[str, Any]
    message: str


class Check(Protocol):
    """A compiled schema."""

    def is_valid(self, content: object) -> bool: ...

    def violations(self, content: object) -> Iterable[Violation]: ...
