"""How warm the accelerators are, as their drivers say. Unknown is left out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from agent.machine.devices import Machine, amd_cards, read_number

Reading = tuple[str, float]
"""A device by its place in the order of `devices.devices`, and degrees Celsius."""

EVERY_S = 10.0


class Temperatures:
    """A thread of its own, as a driver may hang; none where there is no accelerator."""

    def __init__(self, machine: Machine | None = None, *, every_s: float = EVERY_S) -> None:
        self._machine = machine or Machine()
        self._every_s = every_s
        self._ending = threading.Event()
        self.now: tuple[Reading, ...] = ()

    def start(self) -> None:
        threading.Thread(target=self._run, name="temperature", daemon=True).start()

    def close(self) -> None:
        self._ending.set()  # not waited for: see above

    def _run(self) -> None:
        nvml = self._machine.nvml()
        while not self._ending.is_set():
            self.now = tuple(read(nvml, self._machine))
            if nvml is None and not self.now:
                return  # nothing to read here, and drivers do not come by themselves
            self._ending.wait(self._every_s)


def read(nvml: Any | None, machine: Machine) -> Iterator[Reading]:  # noqa: ANN401 - see devices.load_nvml
    """All readings now."""
    count = 0
    if nvml is not None:
        count = _count(nvml)
        for index in range(count):
            with contextlib.suppress(nvml.NVMLError):  # one that fell off the bus
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                degrees = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
                yield str(index), float(degrees)
    for index, (card, _) in enumerate(amd_cards(machine.root), start=count):
        for place in sorted((card / "hwmon").glob("hwmon*/temp1_input"))[:1]:
            millidegrees = read_number(place)
            if millidegrees is not None:
                yield str(index), millidegrees / 1000


def _count(nvml: Any) -> int:  # noqa: ANN401 - see devices.load_nvml
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:  # the driver is being replaced
        return 0
