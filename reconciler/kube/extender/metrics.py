"""The content of `/metrics`. docs/metrics.md lists the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from reconciler import __version__
from reconciler.metrics.exposition import family, info
from reconciler.metrics.table import EXTENDER

if TYPE_CHECKING:
    from reconciler.kube.extender.tally import Sources, Tally


def collect(tally: Tally, sources: Sources) -> Iterator[Metric]:
    yield info(EXTENDER["fleet_build_info"], __version__)
    yield family(EXTENDER["fleet_extender_requests_total"], sorted(tally.answers.items()))
    yield family(
        EXTENDER["fleet_extender_seconds_total"],
        (((verb,), spent) for verb, spent in sorted(tally.seconds.items())),
    )
    yield family(
        EXTENDER["fleet_extender_nodes_refused_total"],
        (((why,), count) for why, count in sorted(tally.failed_nodes.items())),
    )
    if (unknown := tally.unknown) is not None:
        facts = {"speed": unknown.speed, "utilisation": unknown.utilisation, "cost": unknown.cost}
        yield family(
            EXTENDER["fleet_extender_unknown_nodes"],
            (((fact,), count) for fact, count in facts.items()),
        )
    is_read = sources.judge() is not None
    yield family(EXTENDER["fleet_extender_ready"], [((), float(is_read))])
    used = float(len(sources.used()))
    yield family(EXTENDER["fleet_extender_utilisation_nodes"], [((), used)])
