"""Apple silicon, whose graphics share the machine's memory; other Macs have none for models."""

from __future__ import annotations

from collections.abc import Iterator

from agent.machine.driver import Driver
from agent.machine.machine import Machine
from reconciler.api.fleetnode import Device


def _devices(machine: Machine) -> Iterator[Device]:
    brand = (machine.tool("sysctl", "-n", "machdep.cpu.brand_string") or "").strip()
    if brand.startswith("Apple"):
        yield Device(vendor="Apple", product=brand.removeprefix("Apple "), memory="unified")


DRIVER = Driver(_devices)
