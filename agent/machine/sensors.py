"""How warm and how busy the accelerators are, from their drivers. Unknown is None, never 0."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent.machine.devices import Machine, amd_cards, nvidia_count, read_number

EVERY_S = 10.0
_BY_TOOL_EVERY_S = 30.0  # it wakes a driver that is not kept awake, which takes a second
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
        self._machine = machine or Machine()
        self._every_s, self._clock = every_s, clock
        self._ending = threading.Event()
        self._read: tuple[float, tuple[SensorReading, ...]] = (0.0, ())

    def start(self) -> None:
        threading.Thread(target=self._run, name="sensors", daemon=True).start()

    def close(self) -> None:
        self._ending.set()  # not waited for: see above

    def now(self) -> tuple[SensorReading, ...]:
        """The last readings; none where they are old."""
        at, found = self._read
        return found if self._clock() - at < _GOOD_FOR_S else ()

    def _run(self) -> None:
        nvml = self._machine.nvml()
        while not self._ending.is_set():
            found = tuple(read(nvml, self._machine))
            self._read = self._clock(), found
            has_card = nvml is not None or any(amd_cards(self._machine.root))
            if not has_card and not found:
                return  # no accelerator here, and drivers do not appear later
            self._ending.wait(self._every_s if has_card else max(self._every_s, _BY_TOOL_EVERY_S))


def read(nvml: Any | None, machine: Machine) -> Iterator[SensorReading]:  # noqa: ANN401 - see devices.load_nvml
    """Of every device, also of one that says nothing."""
    count = 0
    if nvml is not None:
        count = nvidia_count(nvml)
        yield from (_nvidia(nvml, index) for index in range(count))
    else:
        for line in (_asked(machine) or "").splitlines():
            yield SensorReading(str(count), *_by_tool(line))
            count += 1
    for index, (card, _) in enumerate(amd_cards(machine.root), start=count):
        busy = read_number(card / "gpu_busy_percent")
        places = sorted((card / "hwmon").glob("hwmon*/temp1_input"))
        millidegrees = read_number(places[0]) if places else None
        yield SensorReading(
            str(index),
            None if millidegrees is None else millidegrees / 1000,
            None if busy is None else busy / 100,
        )


def _nvidia(nvml: Any, index: int) -> SensorReading:  # noqa: ANN401 - see devices.load_nvml
    """One that fell off the bus says nothing, one that is cut into slices not how busy it is."""
    degrees = busy = None
    with contextlib.suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        with contextlib.suppress(nvml.NVMLError):
            degrees = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    return SensorReading(str(index), degrees, busy)


def _asked(machine: Machine) -> str | None:
    query = "--query-gpu=temperature.gpu,utilization.gpu"
    return machine.tool("nvidia-smi", query, "--format=csv,noheader,nounits")


def _by_tool(line: str) -> tuple[float | None, float | None]:
    degrees, _, busy = (part.strip() for part in line.partition(","))
    return (
        float(degrees) if re.fullmatch(r"[0-9]{1,3}", degrees) else None,
        int(busy) / 100 if re.fullmatch(r"[0-9]{1,3}", busy) else None,
    )
