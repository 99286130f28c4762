"""How warm and how busy the accelerators are, from their drivers. Unknown is None, never 0."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from agent.machine.drivers import EVERY_DRIVER
from agent.machine.machine import Machine

EVERY_S = 10.0
_ASLEEP_EVERY_S = 30.0  # reading a driver that sleeps takes a second
_GOOD_FOR_S = 60.0  # what a driver said before it began to hang is not said for ever


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One device, by its place in the order of `devices.devices`. `utilization`: 0 to 1."""

    gpu: str
    celsius: float | None = None
    utilization: float | None = None


class Sensors:
    """A thread of its own, as a driver may hang; none without an accelerator."""

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        machine = machine or Machine()
        self._machine = replace(machine, nvml=cache(machine.nvml))  # loaded once, in the thread
        self._every_s, self._clock = every_s, clock
        self._ending = threading.Event()
        self._read: tuple[float, tuple[SensorReading, ...]] = (0.0, ())

    def start(self) -> None:
        threading.Thread(target=self._run, name="sensors", daemon=True).start()

    def close(self) -> None:
        self._ending.set()  # not waited for: see above

    def now(self) -> tuple[SensorReading, ...]:
        """The last readings; none where they are old."""
        at, readings = self._read
        return readings if self._clock() - at < _GOOD_FOR_S else ()

    def _run(self) -> None:
        while not self._ending.is_set():
            readings = tuple(read(self._machine))
            self._read = self._clock(), readings
            is_awake = any(driver.is_awake(self._machine) for driver in EVERY_DRIVER)
            if not is_awake and not readings:
                return  # no accelerator here, and drivers do not appear later
            self._ending.wait(self._every_s if is_awake else max(self._every_s, _ASLEEP_EVERY_S))


def read(machine: Machine) -> Iterator[SensorReading]:
    """A reading of every device, also of one that reports nothing."""
    readings = (reading for driver in EVERY_DRIVER for reading in driver.readings(machine))
    for place, (celsius, utilization) in enumerate(readings):
        yield SensorReading(str(place), celsius, utilization)
