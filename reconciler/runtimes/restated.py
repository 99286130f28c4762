"""Arguments in extraArgs that a field says, or that say what is done anyway. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Restated(NamedTuple):
    """What becomes of one flag. `field`: the one below `spec` that says it, with the value of
    `read`, or of `value` where the flag has none; empty: `why` it changes nothing. `is_lost`: its
    author would miss it. `adds`: given again it adds to the list that the field is."""

    names: tuple[str, ...]
    field: str = ""
    read: Callable[[str], object] | None = None
    value: object = None
    why: str = ""
    is_lost: bool = False
    adds: bool = False


class Hit(NamedTuple):
    """One flag among arguments. `value` is that of the field; None: it says what no value says."""

    position: int  # of the flag among the arguments
    flag: str
    row: Restated
    value: object


Table = Mapping[str, Restated]


def table_of(rows: tuple[Restated, ...]) -> Table:
    return {name: row for row in rows for name in row.names}


def taken_out(args: tuple[str, ...], table: Table) -> tuple[tuple[int, ...], tuple[Hit, ...]]:
    """The positions of the arguments that the table does not know, and those that it does. One
    whose value cannot be read stays, and is refused with the others."""
    left: list[int] = []
    hits: list[Hit] = []
    position = 0
    while position < len(args):
        flag, equals, value = args[position].partition("=")
        row = table.get(flag)
        words = 1
        if row is not None and row.read is not None and not equals:
            has_value = position + 1 < len(args) and not _is_flag(args[position + 1])
            value = args[position + 1] if has_value else ""
            words = 2 if has_value else 1
        hit = _hit(position, flag, row, value) if row else None
        if hit:
            hits.append(hit)
        else:
            left += range(position, position + words)
        position += words
    return tuple(left), tuple(hits)


def _hit(position: int, flag: str, row: Restated, value: str) -> Hit | None:
    if row.read is None:
        return Hit(position, flag, row, row.value)
    try:
        return Hit(position, flag, row, row.read(value))
    except (KeyError, ValueError):
        return None


def _is_flag(word: str) -> bool:
    """Whether it is no negative number."""
    return word.startswith("-") and not word[1:2].isdigit()
