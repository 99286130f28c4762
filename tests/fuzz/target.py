"""What is fuzzed: a reader, where its inputs begin, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

CORPUS = Path(__file__).parent / "corpus"
JSON_PIECES = (
    *(b"null", b"[]", b"{}", b"[", b"{", b'"', b"1e400", b"-1", b"NaN"),
    *(b"\\u0000", b"\\ud800"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """`read` gives the reader an input; whatever it raises is a failure. It is made by `prepare`,
    once a process, from a folder of its own. `pieces` are inserted into inputs; `is_json`: values
    of an input are replaced by others, too. `make`: inputs are made by it, and none from others."""

    name: str
    prepare: Callable[[Path], Callable[[bytes], None]]
    seeds: Callable[[], Iterable[bytes]]
    pieces: tuple[bytes, ...] = ()
    is_json: bool = False
    make: Callable[[Random], bytes] | None = None
    cpu_s: float = 5.0  # of this process, for one input: a busy machine makes none longer
    wall_s: float = 90.0  # for whatever it waits for
    memory_bytes: int = 512 * 2**20  # beyond what the process has before its first input


def kept(name: str) -> tuple[Path, ...]:
    """The inputs that were found before, in a fixed order."""
    return tuple(sorted(path for path in (CORPUS / name).glob("*") if path.is_file()))
