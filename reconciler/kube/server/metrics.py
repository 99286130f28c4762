"""The content of `/metrics`, collected from memory for each scrape.

docs/operator.md lists the metrics.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from reconciler import __version__

if TYPE_CHECKING:
    from reconciler.kube.server.board import Board

_Series = Iterable[tuple[tuple[str, ...], float | None]]
"""The values of the labels, and the figure; None leaves the series out."""


class Collector:
    """All metrics of one reconciler, for prometheus_client's exposition. No registry: it is its
    own."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        board = self._board
        yield self._build()
        leads = board.role().leads
        yield _gauge("fleet_is_leader", "1 where this process applies.", (), [((), float(leads))])
        yield from self._plan()
        yield from self._targets()
        yield from self._loop()
        yield _counter(
            "fleet_changes",
            "Steps carried out, by what became of them.",
            ("action", "result"),
            sorted(board.outcomes.items()),
        )
        yield _counter(
            "fleet_webhooks",
            "Calls of forges, by what became of them.",
            ("result",),
            [((result,), count) for result, count in sorted(board.hooks.items())],
        )
        for name, help_, count in (
            ("fleet_status_writes", "Statuses written to clusters.", board.status_writes),
            ("fleet_event_writes", "Events written to clusters.", board.event_writes),
            ("fleet_revisions_refused", "Revisions with errors.", board.refusals),
        ):
            yield _counter(name, help_, (), [((), count)])
        yield from ProcessCollector(registry=None).collect()

    def _build(self) -> Metric:
        plan = self._board.plan
        told = {"version": __version__, "revision": plan.revision if plan else ""}
        return InfoMetricFamily("fleet_reconciler", "What runs, and what it follows.", told)

    def _plan(self) -> Iterator[Metric]:
        plan = self._board.plan
        if plan is None:
            return
        yield _gauge(
            "fleet_plan",
            "What the last plan counts, by kind of step.",
            ("action",),
            [((name,), float(count)) for name, count in plan.summary.items()],
        )
        reasons = Counter(blocked.reason for blocked in plan.blocked)
        yield _gauge(
            "fleet_blocked",
            "Objects that stay as they are, by reason.",
            ("reason",),
            [((reason,), float(count)) for reason, count in sorted(reasons.items())],
        )

    def _targets(self) -> Iterator[Metric]:
        observed = self._board.observed
        if observed is None:
            return
        states = sorted(observed.targets.items())
        yield _gauge(
            "fleet_target_reachable",
            "1 where the target answered the last time.",
            ("target",),
            [((target,), float(state.reachable)) for target, state in states],
        )
        counts = Counter((i.target, str(i.ready).lower()) for i in observed.instances)
        yield _gauge(
            "fleet_instances",
            "Services as targets run them.",
            ("target", "ready"),
            [(labels, float(count)) for labels, count in sorted(counts.items())],
        )

    def _loop(self) -> Iterator[Metric]:
        board = self._board
        lost_s = None if board.lost_since is None else max(0.0, time.time() - board.lost_since)
        yield _counter("fleet_passes", "Passes of the loop.", (), [((), board.passes)])
        for name, help_, figure in (
            ("fleet_pass_seconds", "What the last pass took.", board.pass_s),
            ("fleet_last_pass_timestamp_seconds", "When it ended.", board.passed_at),
            ("fleet_source_lost_seconds", "How long the source has given nothing.", lost_s or 0.0),
        ):
            yield _gauge(name, help_, (), [((), figure)])


def _gauge(name: str, help_: str, labels: tuple[str, ...], series: _Series) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for values, figure in series:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def _counter(
    name: str, help_: str, labels: tuple[str, ...], series: Iterable[tuple[tuple[str, ...], int]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_, labels=labels)
    for values, count in series:
        family.add_metric(values, count)
    return family
