"""The content of `/metrics`. docs/scheduler.md lists the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from reconciler import __version__

if TYPE_CHECKING:
    from reconciler.kube.extender.app import Sources, Tally


class Collector:
    """For prometheus_client's exposition, as its own registry."""

    def __init__(self, tally: Tally, sources: Sources) -> None:
        self._tally, self._sources = tally, sources

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        yield InfoMetricFamily("fleet_build", "The extender.", {"version": __version__})
        answers = CounterMetricFamily(
            "fleet_extender_requests", "Calls of schedulers.", labels=("verb", "result")
        )
        for labels, count in sorted(tally.answers.items()):
            answers.add_metric(labels, count)
        yield answers
        seconds = CounterMetricFamily(
            "fleet_extender_seconds", "Time spent on those that were answered.", labels=("verb",)
        )
        for verb, spent in sorted(tally.seconds.items()):
            seconds.add_metric((verb,), spent)
        yield seconds
        failed = CounterMetricFamily(
            "fleet_extender_nodes_refused",
            "Nodes that were filtered out; passing: only while others run there.",
            labels=("why",),
        )
        for why, count in sorted(tally.failed_nodes.items()):
            failed.add_metric((why,), count)
        yield failed
        if tally.unknown is not None:
            yield self._unknown()
        yield GaugeMetricFamily(
            "fleet_extender_ready",
            "1 once the cluster has been read.",
            value=float(self._sources.judge() is not None),
        )
        yield GaugeMetricFamily(
            "fleet_extender_utilisation_nodes",
            "Nodes whose utilisation was read within the last minute.",
            value=float(len(self._sources.used())),
        )
        yield from ProcessCollector(registry=None).collect()

    def _unknown(self) -> Metric:
        made = GaugeMetricFamily(
            "fleet_extender_unknown_nodes",
            "Nodes of the last service that was scored of which it is not known.",
            labels=("fact",),
        )
        unknown = self._tally.unknown
        assert unknown is not None
        for fact in ("speed", "utilisation", "cost"):
            made.add_metric((fact,), getattr(unknown, fact))
        return made
