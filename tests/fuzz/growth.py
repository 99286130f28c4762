"""The law that readers keep: an input that grows costs time as it grows, and memory likewise.

An input here is a recipe and not a text: a line of JSON for each part, `[times, text, closing]`. A
part with `times` 0 stands once; the others share the size that is asked for by their `times`, and
each is written again and again, as `closing` is behind everything. `%d` in it counts. So the same
recipe makes texts of any size, and what a reader takes for each can be compared.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_TIMES = 4  # as large as the one before
_TRIES = 3  # a busy machine is forgiven: the least that either size ever took counts
_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Part(NamedTuple):
    times: int
    text: str
    closing: str = ""


Recipe = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Law:
    """`sizes` of a text from `smallest`, each four times the last. Below `free_s` time says
    nothing; above it, four times the input takes at most `most_times` as long, and never more than
    `most_s`. Memory: at most `bytes_a_byte` of the input, beyond `free_bytes`."""

    smallest: int = 2**18
    largest: int = 2**20
    most_s: float = 10.0  # of CPU, for the largest
    most_times: float = 8.0  # n log n takes 4.8 times as long here, and a square 16 times
    free_s: float = 0.1
    bytes_a_byte: int = 100
    free_bytes: int = 2**25

    @property
    def sizes(self) -> Iterator[int]:
        size = self.smallest
        while size <= self.largest:
            yield size
            size *= _TIMES


def written(parts: Iterable[Part]) -> bytes:
    return b"".join(json.dumps(part).encode() + b"\n" for part in parts)


def parts_of(recipe: bytes) -> tuple[Part, ...]:
    """Without the lines that are none: a recipe is made smaller by leaving bytes out."""
    found = []
    for line in recipe.splitlines():
        try:
            times, text, closing = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if type(times) is int and isinstance(text, str) and isinstance(closing, str) and text:
            found.append(Part(min(max(times, 0), 9), text, closing))
    return tuple(found)


def grown(parts: tuple[Part, ...], size: int) -> str:
    """About so many characters."""
    shares = sum(part.times for part in parts) or 1
    opened, closed = [], []
    for part in parts:
        often = max(1, size * part.times // shares // len(part.text)) if part.times else 1
        is_counted = "%d" in part.text and part.times
        opened += (
            [part.text.replace("%d", str(n)) for n in range(often)]
            if is_counted
            else ([part.text * often])
        )
        closed.append(part.closing * often)
    return "".join((*opened, *reversed(closed)))


def follow(law: Law, make: Callable[[int], T], read: Callable[[T], object]) -> None:
    """AssertionError: an input of one of the law's sizes, as `make` makes them, costs more than the
    law has."""
    before: T | None = None
    before_s = 0.0
    for size in law.sizes:
        given = make(size)
        took_s, took_bytes = _cost(read, given)
        allowed = law.free_bytes + law.bytes_a_byte * size
        assert took_bytes <= allowed, f"{took_bytes:,} bytes of memory for {size:,}"
        for _ in range(_TRIES):
            most_s = law.most_s
            if before is not None:
                most_s = min(law.most_times * max(before_s, law.free_s), most_s)
            if took_s <= most_s:
                break
            if before is not None:
                before_s = max(before_s, _cost(read, before)[0])  # the busy machine was faster then
            took_s = min(took_s, _cost(read, given)[0])
        else:
            raise AssertionError(f"{took_s:.2f} s for {size:,} bytes, after {before_s:.2f} s")
        before, before_s = given, took_s


def _cost(read: Callable[[T], object], given: T) -> tuple[float, int]:
    """Seconds of this process, and the most that it had more than before."""
    gc.collect()
    before = _peak()
    began = time.process_time()
    read(given)
    return time.process_time() - began, _peak(forget=False) - before


def _peak(*, forget: bool = True) -> int:
    """The most memory that this process had since it was forgotten; always 0 on macOS."""
    if not _FORGET.exists():
        return 0
    if forget:
        _FORGET.write_text("5")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
