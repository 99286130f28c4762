"""How long a model file's header takes to read: `python -m bench.header [MODEL.gguf ...]`.

Without a file: Gemma 3 270M, 253 MB with 262,144 tokens in its vocabulary, downloaded once.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from bench.table import Row, show, timed
from reconciler.gguf.header import read_path

BUDGET_MS = 60
RUNS = 15


def rows(models: Iterable[Path] = ()) -> Iterator[Row]:
    for path in tuple(models) or (_gemma(),):
        facts = read_path(path)
        walls, cpus = zip(*(timed(partial(read_path, path)) for _ in range(RUNS)), strict=True)
        what = f"header of {path.name[:36]}"
        how = f"{facts.file_bytes / 1e6:.0f} MB, {facts.vocabulary:,} tokens, {RUNS} times"
        yield Row(what, "ms", walls, how, BUDGET_MS, cpus)
        yield Row(f"{what}: memory", "MiB", [_peak(path)], "most that Python held")


def _gemma() -> Path:
    from tests.support.real_models import GEMMA, model_path  # imports the agent

    return model_path(GEMMA)


def _peak(path: Path) -> float:
    """In MiB; measured apart, as tracing is slow."""
    tracemalloc.start()
    read_path(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


if __name__ == "__main__":
    show(rows(map(Path, sys.argv[1:])))
