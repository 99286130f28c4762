"""The drivers of accelerators by the system on which they are, in the order in which engines count
devices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from agent.machine import amd, apple, nvidia
from agent.machine.driver import Driver

System = Literal["linux", "darwin"]

DRIVERS: Mapping[System, tuple[Driver, ...]] = MappingProxyType(
    {"linux": (nvidia.DRIVER, amd.DRIVER), "darwin": (apple.DRIVER,)}
)
EVERY_DRIVER = tuple(driver for drivers in DRIVERS.values() for driver in drivers)
