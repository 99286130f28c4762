"""The metrics of accelerators, under the same names wherever they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from agent.machine.sensors import SensorReading

_NAMES: tuple[tuple[str, str, Callable[[SensorReading], float | None]], ...] = (
    (
        "flexinfer_gpu_temperature_celsius",
        "As the driver says; absent where there is none.",
        lambda reading: reading.celsius,
    ),
    (
        "fleet_gpu_utilization_ratio",
        "Share of the last moments in which it computed, 0 to 1; absent where no driver says it.",
        lambda reading: reading.utilization,
    ),
)


def gpu_metrics(readings: Iterable[SensorReading], node: str) -> Iterator[Metric]:
    readings = tuple(readings)
    for name, help_, figure in _NAMES:
        family = GaugeMetricFamily(name, help_, labels=("gpu", "node"))
        for reading in readings:
            if (found := figure(reading)) is not None:
                family.add_metric((reading.gpu, node), found)
        yield family
