"""JSON that grows, for every reader of it: a few shapes, at any place of what the reader knows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from tests.fuzz.growth import Part, Recipe

SHAPES: dict[str, Recipe] = {
    "lists in lists": (Part(1, "[", "]"),),
    "objects in objects": (Part(1, '{"a":', "}"), Part(0, "1")),
    "brackets without end": (Part(1, "["),),
    "a long text": (Part(0, '"', '"'), Part(1, "x")),
    "a long text of escapes": (Part(0, '"', '"'), Part(1, '\\u00e9\\n\\"')),
    "quotes without end": (Part(0, '"'), Part(1, '\\"')),
    "halves of characters": (Part(0, '"', '"'), Part(1, "\\ud800")),
    "wide characters": (Part(0, '"', '"'), Part(1, "é\U0001f600")),
    "a long number": (Part(1, "9"),),
    "a long fraction": (Part(0, "0."), Part(1, "9")),
    "spaces": (Part(1, " "), Part(0, "1")),
    "lines": (Part(0, '"', '"'), Part(1, "a \\n")),
    "many keys": (Part(0, "{", '"":0}'), Part(1, '"k%d":0,')),
    "many equal keys": (Part(0, "{", '"":0}'), Part(1, '"k":0,')),
    "a long key": (Part(0, "{", "}"), Part(0, '"', '":0'), Part(1, "k")),
    "many numbers": (Part(0, "[", "0]"), Part(1, "0,")),
    "many empty objects": (Part(0, "[", "0]"), Part(1, "{},")),
    "many nulls": (Part(0, "[", "0]"), Part(1, "null,")),
    "many texts": (Part(0, "[", "0]"), Part(1, '"k%d",')),
    "many objects": (Part(0, "[", "0]"), Part(1, '{"name":"k%d","a":{"b":[1]}},')),
    "objects of objects": (Part(0, "{", '"":0}'), Part(1, '"k%d":{"a":{"b":"c"}},')),
}

_MOST_PLACES = 60  # of one value


def places(value: object) -> Iterator[tuple[Part, object]]:
    """What stands around each value in a JSON value, and that value."""
    yield Part(0, " ", ""), value
    for path in _paths(value):
        at: Any = value
        for key in path:
            at = at[key]
        before, after = json.dumps(_with(value, path, "@@")).split('"@@"', 1)
        yield Part(0, before, after), at


def repeated(around: Part, value: object) -> Recipe | None:
    """What a container holds first, again and again; None: it holds nothing."""
    if isinstance(value, dict) and value:
        key, item = next(iter(value.items()))
        entry = json.dumps({key + "%d": item})[1:-1]
        return around, Part(0, "{", f"{json.dumps(key)}:{json.dumps(item)}}}"), Part(1, f"{entry},")
    if isinstance(value, list) and value:
        entry = json.dumps(value[0])
        counted = entry.replace('chat"', 'chat%d"').replace('name": "', 'name": "n%d')
        return around, Part(0, "[", f"{entry}]"), Part(1, f"{counted},")
    return None


def known(seeds: Iterable[bytes]) -> Iterator[Recipe]:
    """Each shape by itself, and each container of what a reader knows, with more of the same."""
    yield from SHAPES.values()
    for value in _values(seeds):
        yield from (recipe for place in places(value) if (recipe := repeated(*place)) is not None)


def by_chance(chance: Random, seeds: Iterable[bytes]) -> Recipe:
    """A shape, or two of them beside each other, somewhere in what a reader knows."""
    around, value = chance.choice(list(places(chance.choice([*_values(seeds), None]))))
    again = repeated(around, value)
    if again is not None and chance.random() < 0.3:
        return again
    shape = chance.choice(list(SHAPES.values()))
    if chance.random() < 0.3:
        return around, Part(0, "[", "]"), *shape, Part(0, ","), *chance.choice([*SHAPES.values()])
    if chance.random() < 0.3:
        return around, Part(1, chance.choice(('{"a":', "[", '{"a%d":[')), ""), *shape
    return around, *shape


def _values(seeds: Iterable[bytes]) -> list[object]:
    found = []
    for seed in seeds:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(seed))
    return found


def _paths(value: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if len(above) > 12:
        return
    rows: Iterable[tuple[Any, object]] = ()
    if isinstance(value, dict):
        rows = value.items()
    elif isinstance(value, list):
        rows = tuple(enumerate(value))[:2]
    for key, item in rows:
        yield (*above, key)
        yield from _paths(item, (*above, key))


def _with(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    key, *rest = path
    if isinstance(value, list):
        return [_with(v, tuple(rest), new) if n == key else v for n, v in enumerate(value)]
    return {k: _with(v, tuple(rest), new) if k == key else v for k, v in value.items()}
