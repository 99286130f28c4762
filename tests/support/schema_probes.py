"""Documents that try every field of a kind with values that fit and values that do not.

Two validators of the same rules must agree about each of them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_TEXTS = ("", "x", "Upper", "a b", "no", "30s", "1h30m", "1.5Gi", "12Gi", "auto", "unified",
          "https://x.test/m", "0" * 64, "192.168.1.5", ">=0.1", "a" * 5000)  # fmt: skip
_OTHERS = (-1, 0, 1, 3, 64, 70_000, 2**31, 0.5, 1.5, True, False, [], {}, ["a"], {"a": "b"})


class Probe(NamedTuple):
    """One document, and the place that is tried in it."""

    place: str
    value: object
    document: dict[str, Any]


def probes(
    base: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[Probe]:
    """Every place of `spec`, as its schema knows it, with every value, in a valid document."""
    for path, enum in _places(schema, definitions, ("spec",)):
        for value in (*_TEXTS, *_OTHERS, *enum):
            document = copy.deepcopy(dict(base))
            _put(document, path, value)
            yield Probe(".".join(map(str, path)), value, document)


def _places(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], tuple[Any, ...]]]:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if len(path) > 1:
        yield path, tuple(schema.get("enum", ()))
    for name, inside in schema.get("properties", {}).items():
        yield from _places(inside, definitions, (*path, name))
    if "items" in schema:
        yield from _places(schema["items"], definitions, (*path, 0))
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _places(schema["additionalProperties"], definitions, (*path, "key"))


def _put(document: dict[str, Any], path: tuple[str | int, ...], value: object) -> None:
    """Set a value, and make what it stands in; an entry of a list is its first."""
    at: Any = document
    for step, following in itertools.pairwise(path):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            if not at:
                at.append(empty)
        else:
            at.setdefault(step, empty)
        at = at[step]
    if isinstance(path[-1], int) and not at:
        at.append(value)
    else:
        at[path[-1]] = value
