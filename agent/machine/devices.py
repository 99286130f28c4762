"""The accelerators of this machine. A fact that cannot be read is None, and a device that cannot be
sized is left out: a wrong figure would admit what does not fit."""

from __future__ import annotations

from agent.machine.drivers import DRIVERS, System
from agent.machine.machine import Machine
from reconciler.api.fleetnode import Device


def devices(system: System, machine: Machine) -> tuple[Device, ...]:
    """Every accelerator that models can use, in the order in which engines count them."""
    return tuple(device for driver in DRIVERS[system] for device in driver.devices(machine))
