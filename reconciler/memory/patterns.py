"""Patterns of tensor names as llama.cpp reads them: ECMAScript's, searched for anywhere in a name.
Pure.

A pattern is anybody's, so that it is never given to an engine that tries and goes back: what it
takes here is linear in a name, whatever it says. What is rare or read otherwise by other engines
(assertions but `^` and `$`, what a group matched before) is refused.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

_ASCII = frozenset(map(chr, range(128)))
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS = frozenset(string.digits)
_SPACE = frozenset(string.whitespace)
_CLASSES = {
    "d": _DIGITS,
    "w": _WORD,
    "s": _SPACE,
    "D": _ASCII - _DIGITS,
    "W": _ASCII - _WORD,
    "S": _ASCII - _SPACE,
}
_MOST_STATES = 2000
_MOST_KEPT = 10_000
_ACCEPT = 0


class PatternError(ValueError):
    """Why a pattern cannot be read."""


@dataclass(frozen=True, slots=True)
class _State:
    """One that takes a character of `takes`, or one of a place: `^`, `$`, or empty for any."""

    following: tuple[int, ...]
    takes: frozenset[str] | None = None
    place: str = ""


@dataclass(slots=True)
class NamePattern:
    """All ways to match at once, so that no character is looked at twice."""

    _states: list[_State]
    _first: int
    _kept: dict[tuple[frozenset[int], str], frozenset[int]] = field(default_factory=dict)

    def is_in(self, name: str) -> bool:
        """Whether the pattern is found anywhere in the name."""
        now = self._reached((self._first,), "^")
        for character in name:
            if _ACCEPT in now:
                return True
            now = self._after(now, character)
        return _ACCEPT in self._reached(now, "^$" if not name else "$")

    def _after(self, now: frozenset[int], character: str) -> frozenset[int]:
        key = (now, character)
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            states = (self._states[number] for number in now)
            taken = [s.following[0] for s in states if s.takes and character in s.takes]
            self._kept[key] = self._reached((*taken, self._first), "")
        return self._kept[key]

    def _reached(self, numbers: Iterable[int], places: str) -> frozenset[int]:
        seen: set[int] = set()
        waiting = [*numbers]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            state = self._states[number]
            if state.takes is None and (not state.place or state.place in places):
                waiting += state.following
        return frozenset(seen)


@lru_cache(maxsize=256)
def pattern_of(text: str) -> NamePattern:
    """Raises PatternError with a sentence."""
    reader = _Reader(text)
    tree = reader.alternatives()
    if reader.rest:
        raise PatternError("a ) without a ( before it")
    states = [_State(())]
    return NamePattern(states, _built(tree, _ACCEPT, states))


# What is read: characters, a place, a sequence, alternatives, or a repeated part.
@dataclass(frozen=True, slots=True)
class _One:
    takes: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Place:
    place: str


@dataclass(frozen=True, slots=True)
class _Row:
    parts: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Tree, ...]


@dataclass(frozen=True, slots=True)
class _Repeated:
    part: _Tree
    least: int
    most: int | None  # None: no end


_Tree = _One | _Place | _Row | _Any | _Repeated


def _built(tree: _Tree, then: int, states: list[_State]) -> int:
    """The number of the state that begins this part and goes on to `then`."""
    match tree:
        case _One(takes):
            return _added(_State((then,), takes), states)
        case _Place(place):
            return _added(_State((then,), place=place), states)
        case _Row(parts):
            for part in reversed(parts):
                then = _built(part, then, states)
            return then
        case _Any(parts):
            ways = tuple(_built(part, then, states) for part in parts)
            return _added(_State(ways), states)
        case _Repeated(part, least, most):
            if most is None:
                again = _added(_State(()), states)
                states[again] = _State((_built(part, again, states), then))
                then = again
            for _ in range((most or least) - least):
                then = _added(_State((_built(part, then, states), then)), states)
            for _ in range(least):
                then = _built(part, then, states)
            return then


def _added(state: _State, states: list[_State]) -> int:
    if len(states) >= _MOST_STATES:
        raise PatternError("it repeats too much")
    states.append(state)
    return len(states) - 1


_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MOST_DEPTH = 50


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def alternatives(self) -> _Tree:
        ways = [self._row()]
        while self._takes("|"):
            ways.append(self._row())
        return _Any(tuple(ways)) if len(ways) > 1 else ways[0]

    def _row(self) -> _Tree:
        parts: list[_Tree] = []
        while self.rest and self.rest[0] not in "|)":
            parts.append(self._repeated(self._part()))
        return _Row(tuple(parts))

    def _repeated(self, part: _Tree) -> _Tree:
        bounds = self._bounds()
        if bounds is None:
            return part
        if isinstance(part, _Place):
            raise PatternError(f"{part.place} cannot be repeated")
        self._takes("?")  # as few as will do: found or not, all the same
        if self.rest[:1] in ("*", "+", "?", "{"):
            raise PatternError(f"{self.rest[0]} after what is repeated already")
        return _Repeated(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        sign = self.rest[:1]
        if sign in _REPEATS and sign:
            self._at += 1
            return _REPEATS[sign]
        if not self._takes("{"):
            return None
        number, closed, _ = self.rest.partition("}")
        if not closed or not (number.isascii() and number.isdecimal() and len(number) < 4):
            raise PatternError("{ begins a number of repeats, such as {2}; write \\{ for the sign")
        self._at += len(number) + 1
        return int(number), int(number)

    def _part(self) -> _Tree:
        sign = self._next()
        match sign:
            case "(":
                return self._group()
            case "[":
                return _One(self._set())
            case ".":
                return _One(_ASCII - {"\n", "\r"})
            case "^" | "$":
                return _Place(sign)
            case "\\":
                return _One(self._escaped())
            case "*" | "+" | "?" | "{":
                raise PatternError(f"nothing before {sign} that it could repeat")
            case "]" | "}":
                raise PatternError(f"write \\{sign} for the sign")
        return _One(frozenset(sign))

    def _group(self) -> _Tree:
        if self._takes("?") and not self._takes(":"):
            raise PatternError("(? is read nowhere here but in (?:")
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise PatternError("too many groups in each other")
        inner = self.alternatives()
        self._depth -= 1
        if not self._takes(")"):
            raise PatternError("a ( without a ) after it")
        return inner

    def _set(self) -> frozenset[str]:
        negated = self._takes("^")
        members: set[str] = set()
        while not self._takes("]"):
            if self.rest[:2] in ("[:", "[.", "[="):
                raise PatternError(f"{self.rest[:2]} is no part of a set here; name its characters")
            low = self._member()
            if len(low) == 1 and self.rest[:1] == "-" and self.rest[1:2] not in ("]", ""):
                self._at += 1
                high = self._member()
                start, end = ord(min(low)), ord(min(high))
                if len(high) != 1 or end < start:
                    raise PatternError(f"no range from {min(low)}")
                members.update(map(chr, range(start, end + 1)))
            else:
                members |= low
        if not members:
            raise PatternError("[] has nothing in it")
        return _ASCII - members if negated else frozenset(members)

    def _member(self) -> frozenset[str]:
        sign = self._next("a [ without a ] after it")
        return self._escaped() if sign == "\\" else frozenset(sign)

    def _escaped(self) -> frozenset[str]:
        sign = self._next("nothing after the last \\")
        if sign in _CLASSES:
            return _CLASSES[sign]
        if sign.isalnum():
            raise PatternError(f"\\{sign} is not read here")
        return frozenset(sign)

    def _next(self, lacking: str = "it ends too early") -> str:
        if not self.rest:
            raise PatternError(lacking)
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, sign: str) -> bool:
        if not self.rest.startswith(sign):
            return False
        self._at += 1
        return True
