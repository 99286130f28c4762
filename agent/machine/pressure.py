"""The memory pressure of this machine, from its kernel. It is shown and stops nothing: the level is
read each time, so it falls by itself when memory is freed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.machine.machine import Machine
from reconciler.api.nodestate import Pressure

Level = Literal["normal", "warning", "critical"]
# Linux, shares of the last 10 s. Some task waited for memory: Android's low memory killer calls
# 70 ms of a second a partial stall (lmkd, ro.lmk.psi_partial_stall_ms). Every task waited:
# systemd-oomd starts to kill at 60 % (oomd.conf, DefaultMemoryPressureLimit).
WARNING_SOME, CRITICAL_FULL = 0.07, 0.60
# macOS: kern.memorystatus_vm_pressure_level, as DISPATCH_MEMORYPRESSURE_* name them.
_APPLE_LEVELS: Mapping[str, Level] = {"1": "normal", "2": "warning", "4": "critical"}
_log = logging.getLogger(__name__)


def read_pressure(machine: Machine | None = None, platform: str = sys.platform) -> Pressure | None:
    """The level now; None if the kernel does not report it, which is neither pressure nor its
    absence."""
    machine = machine or Machine()
    return _apple(machine) if platform == "darwin" else _linux(machine)


@dataclass(slots=True)
class PressureWatch:
    """Reads the level, and logs it whenever it is another one."""

    machine: Machine = field(default_factory=Machine)
    platform: str = sys.platform
    _level: str | None = "normal"

    def read(self) -> Pressure | None:
        pressure = read_pressure(self.machine, self.platform)
        level = pressure.level if pressure else None
        if level != self._level:
            raised = level in ("warning", "critical")
            _log.log(
                logging.WARNING if raised else logging.INFO,
                "memory pressure is %s (it was %s)",
                _described(pressure),
                self._level or "not known",
            )
            self._level = level
        return pressure


def _described(pressure: Pressure | None) -> str:
    if pressure is None:
        return "not known"
    if pressure.some_share is None or pressure.full_share is None:
        return pressure.level
    some, full = f"{pressure.some_share:.0%}", f"{pressure.full_share:.0%}"
    return f"{pressure.level}: in the last 10 s some task waited {some} of the time, all {full}"


def _linux(machine: Machine) -> Pressure | None:
    """`some avg10=0.00 avg60=... total=...` and the same for `full`, in percent."""
    try:
        lines = (machine.root / "proc/pressure/memory").read_text().splitlines()
        shares = {
            words[0]: float(dict(word.split("=") for word in words[1:])["avg10"]) / 100
            for words in map(str.split, lines)
        }
        some, full = shares["some"], shares["full"]
    except (OSError, KeyError, ValueError, IndexError):  # no PSI in this kernel
        return None
    level: Level = "warning" if some >= WARNING_SOME else "normal"
    if full >= CRITICAL_FULL:
        level = "critical"
    return Pressure(level=level, some_share=some, full_share=full)


def _apple(machine: Machine) -> Pressure | None:
    value = (machine.tool("sysctl", "-n", "kern.memorystatus_vm_pressure_level") or "").strip()
    level = _APPLE_LEVELS.get(value)
    return Pressure(level=level) if level else None
