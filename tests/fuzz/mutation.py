"""An input made from others, as chance wants it. Pure: the same chance makes the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

_MOST_BYTES = 2**20
_ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b"\r",
    b"\x1b",
    b'"',
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\x85",
)
_ODD_VALUES: tuple[Any, ...] = (
    None, True, "", "a", [], {}, [[]], {"": None}, [None], -1, 0, 1, 2**31, 2**63, 2**64, 10**30,
    0.5, -1e300, 1e308, "\0", "\ud800", "\x1b[2J", "../..", "/", "a\nb", "x" * 10_000,
)  # fmt: skip


def mutated(
    chance: Random, pool: Sequence[bytes], pieces: Sequence[bytes], *, is_json: bool
) -> bytes:
    """One of the pool with a few changes."""
    data = chance.choice(pool)
    if is_json and chance.random() < 0.6:
        data = _changed_json(chance, data)
        if chance.random() < 0.8:
            return data
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 8))):
        data = chance.choice(_CHANGES)(chance, data, pool, pieces)
    return data[:_MOST_BYTES]


def _flip(chance: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _turn in range(chance.randint(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 127, 128, 255, 10, 32))
    return bytes(changed)


def _cut(chance: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    begin, end = _range(chance, data)
    return data[:begin] + data[end:]


def _insert(chance: Random, data: bytes, _: Sequence[bytes], pieces: Sequence[bytes]) -> bytes:
    at = chance.randint(0, len(data))
    times = chance.choice((1, 1, 1, 1, 2, 10, 200, 5_000))
    return data[:at] + chance.choice((*pieces, *_ODD_BYTES)) * times + data[at:]


def _repeat(chance: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    begin, end = _range(chance, data)
    times = chance.choice((2, 3, 10, 200, 3_000))
    return (
        data[:end] + data[begin:end] * min(times, _MOST_BYTES // max(1, end - begin)) + data[end:]
    )


def _splice(chance: Random, data: bytes, pool: Sequence[bytes], _: Sequence[bytes]) -> bytes:
    other = chance.choice(pool)
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def _move(chance: Random, data: bytes, *_: Sequence[bytes]) -> bytes:
    begin, end = _range(chance, data)
    rest, at = data[:begin] + data[end:], chance.randint(0, max(0, len(data) - (end - begin)))
    return rest[:at] + data[begin:end] + rest[at:]


_CHANGES = (_flip, _cut, _insert, _insert, _repeat, _splice, _move)


def _range(chance: Random, data: bytes) -> tuple[int, int]:
    begin = chance.randint(0, len(data))
    return begin, min(len(data), begin + chance.choice((1, 2, 4, 8, 30, 200)))


def _changed_json(chance: Random, data: bytes) -> bytes:
    """With other values in the place of some; the same bytes where it is no JSON."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _replaced(chance, value)
    text = json.dumps(value)
    if chance.random() < 0.1:
        deep = chance.choice((50, 300, 1_500, 100_000))
        text = text.replace("null", "[" * deep + "]" * deep, 1)
    return text.encode()


def _replaced(chance: Random, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or chance.random() < 0.15:
        return chance.choice(_ODD_VALUES)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [*value[:at], _replaced(chance, value[at]), *value[at + 1 :]]
    key = chance.choice(sorted(value))
    if chance.random() < 0.2:
        return {k: v for k, v in value.items() if k != key}
    return value | {key: _replaced(chance, value[key])}
