"""Extra arguments that a manifest may hand to a runtime: an allow-list a runtime. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

NUMBER = r"[-+]?[0-9]{1,12}(\.[0-9]{1,12})?"
TEXT = r"[^\x00-\x1f\x7f]{0,4096}"
JSON_OBJECT = r"\{[^\x00-\x1f\x7f]{0,4096}\}"
_WHOLE_NUMBER = re.compile(NUMBER)


@dataclass(frozen=True, slots=True)
class Allowed:
    """A flag that a manifest may contain; `value` is the form of its value, None: no value."""

    names: tuple[str, ...]
    value: str | None = NUMBER

    @property
    def key(self) -> str:
        """The long name without dashes, as a preset file spells it."""
        return next(n for n in self.names if n.startswith("--")).removeprefix("--")


def by_name(rows: Iterable[Allowed]) -> Mapping[str, Allowed]:
    """The rows under each of their names."""
    return MappingProxyType({name: row for row in rows for name in row.names})


def refused(
    args: tuple[str, ...], allowed: Mapping[str, Allowed], why: Callable[[str], str]
) -> tuple[tuple[int, str], ...]:
    """Why arguments are refused: (index, reason) pairs; empty when all are fine.

    `why` returns the reason for a flag that is not allowed.
    """
    refusals = []
    position = 0
    while position < len(args):
        reason, width = _check_one(args, position, allowed, why)
        if reason is not None:
            refusals.append((position, reason))
        position += width
    return tuple(refusals)


def reason(reasons: Mapping[str, str], flag: str) -> str:
    """Why a flag is not allowed, by a runtime's table of flags that users try."""
    why = reasons.get(flag)
    return f"{flag} cannot be set: {why}" if why else unlisted(flag)


def unlisted(flag: str) -> str:
    """Why a flag is refused that the runtime does not list."""
    return f"{flag} is not in the list of allowed arguments; {_ASK}"


def unlisted_variable(name: str) -> str:
    """Why a variable is refused that the runtime does not list."""
    return f"{name} is not in the list of allowed variables; {_ASK}"


def names_of(allowed: Mapping[str, Allowed]) -> tuple[str, ...]:
    """The long names of the arguments that may be set."""
    return tuple(dict.fromkeys(f"--{row.key}" for row in allowed.values()))


_ASK = "`reconcile schema --arguments` prints it"


def flags_of(
    args: tuple[str, ...], allowed: Mapping[str, Allowed]
) -> tuple[tuple[str, str | bool], ...]:
    """Checked arguments as (flag, value) pairs under their long names; True for a bare flag."""
    pairs: list[tuple[str, str | bool]] = []
    position = 0
    while position < len(args):
        flag, equals, value = args[position].partition("=")
        row = allowed[flag]
        if row.value is None:
            pairs.append((f"--{row.key}", True))
        elif equals:
            pairs.append((f"--{row.key}", value))
        else:
            position += 1
            pairs.append((f"--{row.key}", args[position]))
        position += 1
    return tuple(pairs)


def as_argv(args: Iterable[str], allowed: Mapping[str, Allowed]) -> tuple[str, ...]:
    """Checked arguments for a command line, under their long names."""
    argv: list[str] = []
    for flag, value in flags_of(tuple(args), allowed):
        argv += (flag,) if value is True else (flag, str(value))
    return tuple(argv)


def _check_one(
    args: tuple[str, ...],
    position: int,
    allowed: Mapping[str, Allowed],
    why: Callable[[str], str],
) -> tuple[str | None, int]:
    """Why the flag at this position is refused, and how many arguments it takes."""
    flag, equals, value = args[position].partition("=")
    row = allowed.get(flag)
    if row is None:
        is_flag = flag.startswith("-")
        first = f"{flag!r} is not a flag; write the flag first, then its value as the next item"
        return (why(flag) if is_flag else first), _width(args, position)
    if row.value is None:
        return (f"{flag} takes no value" if equals else None), 1
    width = 1
    if not equals:
        if position + 1 == len(args):
            return f"{flag} needs a value", 1
        value, width = args[position + 1], 2
    if re.fullmatch(row.value, value) is None:
        return f"{value!r} is not a valid value for {flag}", width
    return None, width


def _width(args: tuple[str, ...], position: int) -> int:
    """A refused flag takes the arguments after it that are not flags, so that it is reported
    once."""
    if not args[position].startswith("-") or "=" in args[position]:
        return 1
    rest = args[position + 1 : position + 2]
    return 2 if rest and (not rest[0].startswith("-") or _WHOLE_NUMBER.fullmatch(rest[0])) else 1
