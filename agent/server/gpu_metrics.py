"""The metrics of accelerators, under the same names wherever they are measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from reconciler.metrics.exposition import family
from reconciler.metrics.table import AGENT

if TYPE_CHECKING:
    from agent.machine.sensors import SensorReading


def gpu_metrics(readings: Iterable[SensorReading], node: str) -> Iterator[Metric]:
    readings_now = tuple(readings)
    yield family(
        AGENT["flexinfer_gpu_temperature_celsius"],
        (((r.gpu, node), r.celsius) for r in readings_now),
    )
    yield family(
        AGENT["fleet_gpu_utilization_ratio"], (((r.gpu, node), r.utilization) for r in readings_now)
    )
