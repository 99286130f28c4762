"""Headers of GGUF files, and the memory estimated from them. HeaderError, and no other."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.target import Target
from tests.gguf.test_header import SEEDS, Stream, facts_or_refusal


def _prepare(_: Path) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        facts_or_refusal(io.BytesIO(data), len(data))
        facts_or_refusal(io.BytesIO(data), len(data) + 2**40)
        facts_or_refusal(io.BufferedReader(Stream(data)), len(data))

    return read


TARGET = Target(
    "gguf",
    _prepare,
    lambda: SEEDS,
    pieces=(
        b"GGUF",
        b"llama.block_count",
        b"general.alignment",
        b"split.count",
        b"general.file_type",
        *(struct.pack("<I", n) for n in (0, 1, 8, 9, 12, 2**31, 2**32 - 1)),
        *(struct.pack("<Q", n) for n in (0, 1, 2**20, 2**32, 2**63, 2**64 - 1)),
        struct.pack("<d", float("nan")),
        struct.pack("<f", float("inf")),
    ),
    memory_bytes=256 * 2**20,
)
