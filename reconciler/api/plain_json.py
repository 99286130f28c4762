"""JSON that anybody may have written, a file on disk or a neighbour: what is wrong is a ValueError.
Pure.

Python's own reader raises RecursionError for ten kilobytes of brackets, and takes numbers that no
field of the wire format holds: an infinite one, or one of 400 digits, fails where it is first used.
"""

from __future__ import annotations

import json
import math
from typing import Any

_MOST_DIGITS = 40  # more than any size in bytes, or identity


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """The value. Raises ValueError: no JSON, nested too deep, or a number that is none for us."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a usable number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:_MOST_DIGITS])


def _whole(text: str) -> int:
    return int(text) if len(text) <= _MOST_DIGITS else int(_refuse(f"{text[:_MOST_DIGITS]}..."))


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
