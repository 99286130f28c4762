"""Every benchmark as one table: `make bench`, or `python -m bench`. Takes about ten minutes.

One alone: `python -m bench.plan`. On a shared machine look at `min` and `min cpu`.
Those beside a cluster are run alone, as they take minutes: `python -m bench.cluster`, and
`python -m bench.rollout` with pods that come and go.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import (
    agent,
    central,
    extender,
    foreign,
    header,
    idle,
    page,
    plan,
    scale,
    spawn,
    start,
    swap,
    threads,
    validate,
    wake,
)
from bench.table import Row, show

BENCHMARKS = (
    start,
    validate,
    plan,
    foreign,
    header,
    idle,
    agent,
    central,
    page,
    extender,
    spawn,
    wake,
    threads,
    swap,
    scale,
)


def rows() -> Iterator[Row]:
    for benchmark in BENCHMARKS:
        yield from benchmark.rows()


if __name__ == "__main__":
    show(rows())
