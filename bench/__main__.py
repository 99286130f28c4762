"""Every benchmark as one table: `make bench`, or `python -m bench`. Takes about five minutes.

One alone: `python -m bench.plan`. On a shared machine look at `min` and `min cpu`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import agent, header, idle, plan, start, swap, threads, validate
from bench.table import Row, show

BENCHMARKS = (start, validate, plan, header, idle, agent, threads, swap)


def rows() -> Iterator[Row]:
    for benchmark in BENCHMARKS:
        yield from benchmark.rows()


if __name__ == "__main__":
    show(rows())
