"""Where a field belongs that is in the wrong part of a document, such as one level too high.
Pure."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from reconciler.api.exclusion import no_such_field
from reconciler.foreign.schema import is_foreign
from reconciler.source.places import field_path
from reconciler.source.suggest import closest
from reconciler.source.validators import validator

Path = tuple[str, ...]
_ITEM = "[]"  # the step into a list
_FARTHEST = 3  # levels up and down to search


class Intended(NamedTuple):
    """The field that the author probably meant, and what to do about it."""

    message: str
    fields: tuple[tuple[str | int, ...], ...] = ()


def intended(
    kind: str, at: tuple[str | int, ...], name: str, inside: object, known: Collection[str]
) -> Intended:
    """The intended field: one of another part of the document, the fields `inside` one level up, or
    one of those `known` in the mapping `at`."""
    if path := _nested(kind, name):
        message = f"no such field; a dot does not lead into a mapping: write {path[-1]} under"
        return Intended(f"{message} {_shown(path[:-1])}", (path,))
    if path := _right_place(kind, at, name):
        return Intended(f"no such field here; move it to {_shown(path)}", (path,))
    if isinstance(inside, dict) and inside and inside.keys() <= set(known):
        higher = tuple((*at, below) for below in sorted(inside))  # the Rust validator sorts them
        where = ", ".join(field_path(path) for path in higher)
        return Intended(f"no such field; move what it holds one level up: {where}", higher)
    return misspelt(name, known, at)


def misspelt(name: str, known: Collection[str], at: tuple[str | int, ...]) -> Intended:
    """The known field of the mapping `at` that is nearest in spelling, if any is near."""
    if right := closest(name, known):
        return Intended(f'no such field; did you mean "{right}"?', ((*at, right),))
    return Intended(no_such_field(known))


def _right_place(kind: str, at: tuple[str | int, ...], name: str) -> Path | None:
    """The field of this name that is nearest to the mapping `at`. None if there is none near, or
    one that differs only in case."""
    here = _steps(at)
    ranked = sorted(
        (_levels(here, path[:-1]), len(path), path) for path in _fields(kind).get(name.lower(), ())
    )
    if not ranked or ranked[0][2][:-1] == here or ranked[0][0] > _FARTHEST:
        return None
    return ranked[0][2]


def _nested(kind: str, written: str) -> Path | None:
    """The field that a key with dots in it, such as `spec.modelRef`, was meant to be."""
    path = tuple(written.split("."))
    return path if len(path) > 1 and path in _fields(kind).get(path[-1].lower(), ()) else None


def _shown(path: Path) -> str:
    """The path as users write it: `spec.models[].name`."""
    return ".".join(path).replace(f".{_ITEM}", _ITEM)


@functools.cache
def _fields(kind: str) -> Mapping[str, tuple[Path, ...]]:
    """Every field of a kind's schema by its lower-case name."""
    schema = validator(kind).schema
    by_name: dict[str, tuple[Path, ...]] = {}
    for path in dict.fromkeys(_walk(schema, schema, ())):
        by_name[path[-1].lower()] = (*by_name.get(path[-1].lower(), ()), path)
    return by_name


def _walk(schema: dict[str, Any], node: Any, path: Path) -> Iterator[Path]:  # noqa: ANN401  # JSON
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    for name, below in node.get("properties", {}).items():
        if is_foreign(below):
            continue
        yield (*path, name)
        yield from _walk(schema, below, (*path, name))
    yield from _walk(schema, node.get("items"), (*path, _ITEM))
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _walk(schema, choice, path)


def _steps(at: tuple[str | int, ...]) -> Path:
    return tuple(part if isinstance(part, str) else _ITEM for part in at)


def _levels(one: Path, other: Path) -> int:
    """Levels between two mappings: up to what contains both, and down again."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return sum(step != _ITEM for step in (*one[same:], *other[same:]))
