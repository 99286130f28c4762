"""Inputs that grow, for every reader of the table: time grows with them as n log n does at most,
and memory as they do.

The first line of an input is the reader's name, as JSON; the rest is a recipe.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.growth import Recipe, follow, parts_of, written
from tests.fuzz.readers import READERS
from tests.fuzz.target import Target


def recipe_of(name: str, recipe: Recipe) -> bytes:
    return json.dumps(name).encode() + b"\n" + written(recipe)


def _prepare(folder: Path) -> Callable[[bytes], None]:
    logging.disable(logging.WARNING)
    opened: dict[str, Callable[[Any], object]] = {}

    def read(data: bytes) -> None:
        name = _name(data.partition(b"\n")[0])
        reader = READERS.get(name)
        recipe = parts_of(data)
        if reader is None or not any(part.times for part in recipe):
            return
        if name not in opened:
            (folder / name).mkdir()
            opened[name] = reader.prepare(folder / name)
        follow(reader.law, lambda size: reader.make(recipe, size), opened[name])

    return read


def _name(line: bytes) -> str:
    try:
        return str(json.loads(line))
    except (ValueError, RecursionError):
        return ""


def _made(chance: Random) -> bytes:
    name = chance.choice(sorted(READERS))
    return recipe_of(name, READERS[name].by_chance(chance))


TARGET = Target(
    "growth", _prepare, tuple, make=_made, cpu_s=90.0, wall_s=1_800.0, memory_bytes=2**31
)
