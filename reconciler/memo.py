"""A cache of results that are valid as long as their inputs stay the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Same:
    """One object as an input, equal to itself alone. Documents that are equal may differ in which
    of their fields are stated."""

    __slots__ = ("_thing",)

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._thing is other._thing

    __hash__ = None  # type: ignore[assignment]  # an input, and never a key


class Memo(Generic[K, T]):
    """One result per key. Inputs are compared by identity first, which is cheap for unchanged
    objects. Used by one thread."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[tuple[object, ...], T]] = {}

    def find(self, key: K, given: tuple[object, ...], find: Callable[[], T]) -> T:
        """The cached result, or a new one."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != given:
            entry = self._entries[key] = (given, find())
        return entry[1]

    def get(self, key: K, given: tuple[object, ...]) -> T | None:
        """None if it is not cached, or its input has changed."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] == given else None

    def find_all(self, given: Mapping[K, object], find: Callable[[K], T]) -> Mapping[K, T]:
        """A result for each key, by one input each: for thousands, of which few have changed. Other
        keys are dropped."""
        before, self._entries = self._entries, {}
        for key, value in given.items():
            entry = before.get(key)
            if entry is None or (entry[0][0] is not value and entry[0][0] != value):
                entry = ((value,), find(key))
            self._entries[key] = entry
        return {key: entry[1] for key, entry in self._entries.items()}

    def put(self, key: K, given: tuple[object, ...], finding: T) -> None:
        self._entries[key] = (given, finding)

    def keep(self, keys: Container[K]) -> None:
        """Drop all other keys."""
        self._entries = {key: entry for key, entry in self._entries.items() if key in keys}
