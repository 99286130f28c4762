"""What was found out, kept for as long as what it was found from stays the same."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Known(Generic[K, T]):
    """A finding for each key. Comparing what it is made from is cheap where that is the same
    object as before, which it is for all that nobody has touched. One thread."""

    def __init__(self) -> None:
        self._found: dict[K, tuple[tuple[object, ...], T]] = {}

    def find(self, key: K, given: tuple[object, ...], find: Callable[[], T]) -> T:
        """As before, or found anew."""
        found = self._found.get(key)
        if found is None or found[0] != given:
            found = self._found[key] = (given, find())
        return found[1]

    def get(self, key: K, given: tuple[object, ...]) -> T | None:
        """None: it is not known, or what it was made from has changed."""
        found = self._found.get(key)
        return found[1] if found is not None and found[0] == given else None

    def put(self, key: K, given: tuple[object, ...], finding: T) -> None:
        self._found[key] = (given, finding)

    def keep(self, keys: Container[K]) -> None:
        """Forget all others."""
        self._found = {key: found for key, found in self._found.items() if key in keys}
