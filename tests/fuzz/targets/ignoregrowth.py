"""Patterns of `.fleetignore` that grow, and paths with them: time grows with both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from reconciler.api.errors import SourceError
from reconciler.source.fleetignore import ignore_matcher
from tests.fuzz.growth import Law, Part, follow, grown, parts_of, written
from tests.fuzz.target import Target

_LAW = Law(smallest=2**4, largest=2**16, most_times=20.0)  # both grow: with the product, 16 times
_MOST_PATH = 4_096  # what the system has
_PATTERNS = ("*", "**", "**/", "/", "?", "a", "ab", "[a-z]", "[!b]", "[", "\\", "\n", "!", "b%d")


def _prepare(_: Path) -> Callable[[bytes], None]:
    def read(recipe: bytes) -> None:
        """The last part is of the path."""
        *patterns, name = parts_of(recipe) or (Part(0, "a"),)

        def ask(text: str) -> None:
            path = grown((name,), min(len(text), _MOST_PATH))
            with contextlib.suppress(SourceError):
                ignore_matcher(text.encode("utf-8", "replace"))(path.strip("/") or "a")

        follow(_LAW, tuple(patterns), ask)

    return read


def _made(chance: Random) -> bytes:
    parts = [
        Part(chance.choice((0, 1, 1)), "".join(chance.choices(_PATTERNS, k=chance.randint(1, 4))))
        for _ in range(chance.randint(1, 4))
    ]
    name = "a" * chance.choice((1, 20, 60)) + chance.choice(("", "/", "b/"))
    return written([*parts, Part(0, "b"), Part(1, name)])


def _seeds() -> Iterable[bytes]:
    yield _made(Random(1))


TARGET = Target("ignoregrowth", _prepare, _seeds, make=_made)
