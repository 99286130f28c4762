"""A field that another project has and we have not, and what becomes of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Shape = Mapping[str, Any]  # a JSON Schema
Native = Mapping[str, Any]  # values by the paths of our fields

TEXT: Shape = {"type": "string"}
TEXTS: Shape = {"type": "array", "items": {"type": "string"}}
BOOLEAN: Shape = {"type": "boolean"}
INTEGER: Shape = {"type": "integer"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "number"}
AMOUNT: Shape = {"anyOf": [{"type": "integer"}, {"type": "string"}]}  # a Kubernetes quantity
ANY: Shape = {"type": "object", "additionalProperties": True}  # a part that Kubernetes defines
LIST: Shape = {"type": "array", "items": ANY}


def reference_to(field: str) -> Shape:
    """An entry of a list that names an object in a field."""
    name: Shape = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": TEXT},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field],
        "properties": {field: name},
    }


def one_of(*words: str) -> Shape:
    return {"type": "string", "enum": list(words)}


def takes(shape: Shape, parts: Sequence[str]) -> bool:
    """Whether there may be such a field in a value; lists are passed through by the way."""
    while shape.get("type") == "array":
        shape = shape["items"]
    if not parts:
        return True
    if shape.get("additionalProperties") is True:
        return True
    inner = shape.get("properties", {}).get(parts[0])
    return inner is not None and takes(inner, parts[1:])


class ForeignField(NamedTuple):
    """One row. `native`: our fields that say the same; None: `text` answers. `quiet` are values
    that ask for nothing else than what is done. `is_lost`: its author would miss what it does.
    `behind` are fields that take precedence over it."""

    path: str
    shape: Shape
    text: str
    native: Callable[[Any], Native] | None = None
    quiet: tuple[object, ...] = ()
    is_lost: bool = False
    behind: tuple[str, ...] = ()


def alias(path: str, shape: Shape, *names: str, behind: tuple[str, ...] = ()) -> ForeignField:
    """Another name of ours, with the same values."""
    return converted(
        path, shape, " and ".join(names), lambda value: dict.fromkeys(names, value), behind
    )


def converted(
    path: str,
    shape: Shape,
    text: str,
    native: Callable[[Any], Native],
    behind: tuple[str, ...] = (),
) -> ForeignField:
    """What ours say with other values."""
    return ForeignField(path, shape, text, native, behind=behind)


def answered(path: str, shape: Shape, text: str, *quiet: object) -> ForeignField:
    """Needed no more, or done in another way."""
    return ForeignField(path, shape, text, quiet=quiet)


def lost(path: str, shape: Shape, text: str, *quiet: object) -> ForeignField:
    """Done by nothing here; `text` says what comes nearest."""
    return ForeignField(path, shape, text, quiet=quiet, is_lost=True)
