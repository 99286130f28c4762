"""What the driver of a vendor's accelerators tells: a file each, and a row in `drivers.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.machine.machine import Machine
from reconciler.api.fleetnode import Device


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """One device. `by_pid` is None if its users are unknown: without permission, or in a container
    whose pids differ from the driver's."""

    uuid: str | None
    total: int
    used: int
    by_pid: Mapping[int, int] | None


Reading = tuple[float | None, float | None]
"""Degrees Celsius, and the share of time that it worked, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Driver:
    """Each function tells of every device, in the order in which engines count them. `memory` is of
    those that have their own; `readings` also of one that says nothing. `is_awake`: it has devices,
    and reading them wakes nothing up."""

    devices: Callable[[Machine], Iterable[Device]]
    memory: Callable[[Machine], Iterable[MeasuredDevice]] = lambda machine: ()
    readings: Callable[[Machine], Iterable[Reading]] = lambda machine: ()
    is_awake: Callable[[Machine], bool] = lambda machine: False
