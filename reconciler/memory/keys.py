"""The keys of a header, as the numbers that they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Number = int | float | bool
FactValue = Number | str | tuple[Number, ...]


class Keys:
    """The header's keys below the architecture's name, as whole numbers."""

    def __init__(self, architecture: str, keys: Mapping[str, FactValue]) -> None:
        self._prefix = architecture + "."
        self._keys = keys

    def get(self, name: str) -> FactValue | None:
        return self._keys.get(self._prefix + name)

    def number(self, name: str, default: int = 0) -> int:
        """One number; the largest if the header has one per layer."""
        match self.get(name):
            case tuple() as values:
                return int(max(values, default=default))
            case int() | float() as value:
                return int(value)
            case _:
                return default

    def per_layer(
        self, name: str, layers: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """One number per layer; a list that is too short continues with its largest."""
        match self.get(name):
            case tuple() as values:
                numbers = [int(value) for value in values[:layers]]
                return tuple(numbers + [max(numbers, default=0)] * (layers - len(numbers)))
            case int() | float() as value:
                return (int(value),) * layers
            case _:
                return default if default is not None else (0,) * layers
