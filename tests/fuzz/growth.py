"""The law that readers keep: an input that grows costs time as it grows, and memory likewise.

An input here is a recipe and not a text: a line of JSON for each part, `[times, text, closing]`. A
part with `times` 0 stands once; the others share the size that is asked for by their `times`, and
each is written again and again, as `closing` is behind everything. `%d` in it counts. So the same
recipe makes texts of any size, and what a reader takes for each can be compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_TIMES = 4  # as large as the one before
_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Part(NamedTuple):
    times: int
    text: str
    closing: str = ""


@dataclass(frozen=True, slots=True)
class Law:
    """`sizes` of a text from `smallest`, each four times the last. Below `free_s` time says
    nothing; above it, four times the input takes at most `most_times` as long. Memory: at most
    `bytes_a_byte` of the input, beyond `free_bytes`."""

    smallest: int
    largest: int
    most_times: float = 10.0  # n log n takes 4.8 times as long here, and a square 16 times
    free_s: float = 0.15
    bytes_a_byte: int = 400
    free_bytes: int = 2**26

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
        is_counted = "%d" in part.text
        opened += (
            [part.text.replace("%d", str(n)) for n in range(often)]
            if is_counted
            else ([part.text * often])
        )
        closed.append(part.closing * often)
    return "".join((*opened, *reversed(closed)))


def follow(law: Law, parts: tuple[Part, ...], read: Callable[[str], None]) -> None:
    """AssertionError: what is read costs more than the law has."""
    if not any(part.times for part in parts):
        return
    before_s = law.free_s
    for size in law.sizes:
        text = grown(parts, size)
        took_s, took_bytes = _cost(read, text)
        allowed = law.free_bytes + law.bytes_a_byte * len(text)
        assert took_bytes <= allowed, f"{took_bytes:,} bytes of memory for {len(text):,}"
        most_s = law.most_times * max(before_s, law.free_s)
        if took_s > most_s:  # a busy machine is forgiven: once more
            took_s = min(took_s, *(_cost(read, text)[0] for _ in range(2)))
        assert took_s <= most_s, f"{took_s:.1f} s for {size:,} bytes, after {before_s:.1f} s"
        before_s = took_s


def _cost(read: Callable[[str], None], text: str) -> tuple[float, int]:
    """Seconds of this process, and the most that it had more than before."""
    before = _peak()
    began = time.process_time()
    read(text)
    return time.process_time() - began, _peak(forget=False) - before


def _peak(*, forget: bool = True) -> int:
    """The most memory that this process had since it was forgotten; always 0 on macOS."""
    if not _FORGET.exists():
        return 0
    if forget:
        _FORGET.write_text("5")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
