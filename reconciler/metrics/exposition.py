"""What a scrape is answered with: series under the names of the table, in Prometheus' formats.

prometheus_client escapes, and chooses the format that was asked for (decision 0042). It takes 1.3
MiB: a program imports this at its first scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from reconciler.metrics.table import EVERYWHERE, MetricRow, MetricType

Series = Iterable[tuple[tuple[str, ...], float | None]]
"""The values of the labels, in the row's order, and the figure; None leaves the series out."""


def family(row: MetricRow, series: Series) -> Metric:
    """A metric of the table with its series."""
    kind = CounterMetricFamily if row.type is MetricType.COUNTER else GaugeMetricFamily
    made = kind(row.name, row.help, labels=row.labels)
    for values, figure in series:
        if figure is not None:
            _expect(row, len(values))
            made.add_metric(values, figure)
    return made


def info(row: MetricRow, *values: str | None) -> Metric:
    """One series, whose labels are what it says; None leaves a label out."""
    _expect(row, len(values))
    labels = {n: v for n, v in zip(row.labels, values, strict=True) if v is not None}
    return InfoMetricFamily(row.name.removesuffix("_info"), row.help, labels)


def exposition(collect: Callable[[], Iterable[Metric]], accept: str) -> tuple[bytes, str]:
    """The body and its content type, with the names that every program has, and the memory and CPU
    of this process. `accept` is the header of the request."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not a number
        encode, content_type = choose_encoder("")
    return encode(_Collected(collect)), content_type


class _Collected:
    """What prometheus_client takes for a registry."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        measured = set[str]()
        for metric in self._collect():
            measured.add(metric.name)
            yield metric
        yield from (family(row, ()) for row in EVERYWHERE if row.name not in measured)
        yield from _process().collect()


@cache
def _process() -> ProcessCollector:
    return ProcessCollector(registry=None)


def _expect(row: MetricRow, count: int) -> None:
    """prometheus_client drops what is too much without a word."""
    if count != len(row.labels):
        raise ValueError(f"{row.name} has {len(row.labels)} labels, not {count}")
