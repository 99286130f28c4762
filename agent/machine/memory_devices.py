"""How much of each device's own memory is used, and by whom. Unknown is None, never 0. Devices that
share the machine's memory are left out: what they use is the machine's."""

from __future__ import annotations

from agent.machine.driver import MeasuredDevice
from agent.machine.drivers import EVERY_DRIVER
from agent.machine.machine import Machine


def device_memory(machine: Machine) -> tuple[MeasuredDevice, ...]:
    """Every device with memory of its own, in the order of `devices.devices`."""
    return tuple(device for driver in EVERY_DRIVER for device in driver.memory(machine))


def of_stated(
    measured: tuple[MeasuredDevice, ...], uuid: str | None, index: int
) -> MeasuredDevice | None:
    """The device that a FleetNode states: by its uuid if stated, else by its index."""
    if uuid is not None:
        return next((device for device in measured if device.uuid == uuid), None)
    return measured[index] if index < len(measured) else None
