"""How busy this machine is: its processor, and its accelerators where their drivers tell. Unknown
is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from agent.machine.machine import Machine
from agent.machine.sensors import read


@dataclass(frozen=True, slots=True)
class Busyness:
    """Cores at work, of so many; and of each device the share of time that it worked, 0 to 1."""

    cores: float
    of_cores: int
    devices: tuple[float | None, ...] = ()


def busyness(machine: Machine, for_s: float) -> Busyness:
    """What is at work now; the processor over so many seconds."""
    share = psutil.cpu_percent(interval=for_s) / 100
    count = psutil.cpu_count() or 1
    return Busyness(share * count, count, device_utilisation(machine))


def device_utilisation(machine: Machine) -> tuple[float | None, ...]:
    """The utilisation of each device, in the order of `devices.devices`; Apple's tells it to root
    alone."""
    return tuple(reading.utilization for reading in read(machine))
