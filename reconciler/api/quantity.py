"""Bytes and durations as people write them in YAML, and as the code computes with them. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
# Kubernetes' YAML readers take a number that begins with 0 for an octal one.
_QUANTITY = re.compile(r"^((?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?$")
_DURATION = re.compile(r"^(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|s|m|h))+$")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_bytes(value: object) -> int:
    """`36Gi`, `1.5G` or a plain integer -> bytes. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{value!r} is not a valid size; write bytes, or a number with Ki, Mi, Gi, Ti"
        )
    return int(float(match[1]) * _UNITS[match[2] or ""])


def format_bytes(count: int) -> str:
    """Bytes -> the shortest quantity that reads back as exactly the same number."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return str(count)


def show_bytes(count: float) -> str:
    """Bytes -> for people, three digits or so: `381 MiB`, `1.2 GiB`. Not meant to be read back."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= size:
            number = count / size
            return (
                f"{number:.1f} {unit}" if number < 100 and unit != "KiB" else f"{number:.0f} {unit}"
            )
    return f"{count:.0f} B"


def show_at_least(count: int) -> str:
    """Bytes -> as `show_bytes`, rounded up: who frees as much as that has freed enough."""
    for size in (2**40, 2**30, 2**20, 2**10):
        if count >= size:
            parts = 10 if count < 100 * size and size > 2**10 else 1
            return show_bytes(-(-count * parts // size) * size / parts)
    return show_bytes(count)


def parse_duration(value: object) -> float:
    """`60s`, `1m30s`, `500ms` -> seconds. Raises ValueError for anything else."""
    if isinstance(value, float):  # our own defaults
        return value
    if not isinstance(value, str) or not _DURATION.match(value):
        raise ValueError(f"{value!r} is not a valid duration; write 30s, 10m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))


def format_duration(seconds: float) -> str:
    """Seconds -> the shortest duration that reads back the same: `90.0` -> `1m30s`."""
    if seconds != int(seconds):
        return f"{round(seconds * 1000)}ms"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    PlainSerializer(format_bytes, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": _QUANTITY.pattern},
            ],
            "description": "Bytes, or a number with Ki, Mi, Gi, Ti (powers of 1024), k, M, G, T.",
        }
    ),
]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _DURATION.pattern,
            "description": "A duration such as 500ms, 60s, 10m or 1h30m.",
        }
    ),
]
