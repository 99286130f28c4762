"""How long a model file's header takes to read, and how much memory: one line a file.

    python bench/header.py MODEL.gguf... [--runs 15]

Budget: under 60 ms for a 250 MB model with 262,144 tokens in its vocabulary.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from pathlib import Path

from reconciler.gguf.header import read_path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    names = ("size MiB", "tokens", "median ms", "worst ms", "peak MiB")
    print(f"{'model':40}", *(f"{name:>9}" for name in names))
    for path in options.models:
        facts = read_path(path)
        times = [_timed(path) for _ in range(options.runs)]
        print(
            f"{path.name[:40]:40} {facts.file_bytes / 2**20:9.1f} {facts.vocabulary:9}"
            f" {statistics.median(times) * 1e3:9.1f} {max(times) * 1e3:9.1f} {_peak(path):9.2f}"
        )


def _timed(path: Path) -> float:
    """Seconds of one walk."""
    begin = time.perf_counter()
    read_path(path)
    return time.perf_counter() - begin


def _peak(path: Path) -> float:
    """Most MiB that Python held during a walk; measured apart, as tracing is slow."""
    tracemalloc.start()
    read_path(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


if __name__ == "__main__":
    main()
