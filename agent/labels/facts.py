"""What a machine says of the hardware that its node is labelled with."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.machine.amd import amd_cards
from agent.machine.devices import devices
from agent.machine.drivers import System
from agent.machine.machine import Machine, read_line, read_number
from agent.machine.mig import Slices, mig_slices
from agent.machine.pci import PciGpu, pci_gpus
from agent.machine.probe import has_avx512
from reconciler.api.errors import ReconcilerError
from reconciler.api.fleetnode import Device

DEADLINE_S = 20.0  # a driver that is loaded by its first question takes seconds


class DriverHangs(ReconcilerError):
    """The machine was asked and gives no answer: nothing may be concluded about what it has."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`devices` are what drivers say, `on_bus` what the machine has. `shared_bytes` is what a
    device without memory of its own may take of the machine's."""

    on_bus: tuple[PciGpu, ...] = ()
    devices: tuple[Device, ...] = ()
    slices: Slices = field(default_factory=dict)
    shared_bytes: int | None = None
    avx512: bool | None = None


def read_facts(machine: Machine | None = None, system: System | None = None) -> Facts:
    """Reads drivers, which may take for ever: see FactsReader."""
    machine = machine or Machine()
    gpus = devices(system or _system(), machine)
    return Facts(
        on_bus=pci_gpus(machine.root),
        devices=gpus,
        slices=mig_slices(machine) if any(d.vendor == "NVIDIA" for d in gpus) else {},
        shared_bytes=_shared_bytes(machine, system or _system()),
        avx512=has_avx512(machine),
    )


class FactsReader:
    """Reads in a thread of its own. One that hangs is left alone, and no second one is started
    beside it: each would hang in the same driver."""

    def __init__(self, read: Callable[[], Facts], deadline_s: float = DEADLINE_S) -> None:
        self._read, self._deadline_s = read, deadline_s
        self._answers: list[Facts | Exception] = []
        self._thread: threading.Thread | None = None

    def __call__(self) -> Facts:
        """Raises DriverHangs."""
        if self._thread is None or not self._thread.is_alive():
            self._answers.clear()
            self._thread = threading.Thread(target=self._run, name="facts", daemon=True)
            self._thread.start()
        self._thread.join(self._deadline_s)
        if not self._answers:
            raise DriverHangs(
                f"the machine's drivers gave no answer within {self._deadline_s:g} s (does"
                " `nvidia-smi` hang too?)"
            )
        self._thread = None
        if isinstance(self._answers[0], Exception):
            raise self._answers[0]
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._read())
        except Exception as error:  # noqa: BLE001 - raised again where it was asked for
            self._answers.append(error)


def _system() -> System:
    return "darwin" if sys.platform == "darwin" else "linux"


def _shared_bytes(machine: Machine, system: System) -> int | None:
    """AMD's driver gives a device its carve-out and a part of the rest, by default half; others
    take what there is."""
    if system == "darwin":
        text = (machine.tool("sysctl", "-n", "hw.memsize") or "").strip()
        return int(text) if text.isdecimal() else None
    for folder, device in amd_cards(machine.root):
        parts = [read_number(folder / f"mem_info_{name}_total") for name in ("vram", "gtt")]
        if device.memory == "unified" and parts[1] is not None:
            return (parts[0] or 0) + parts[1]
    return _total_bytes(read_line(machine.root / "proc/meminfo") or "")


def _total_bytes(meminfo: str) -> int | None:
    rows: Mapping[str, list[str]] = {
        words[0]: words[1:] for line in meminfo.splitlines() if (words := line.split())
    }
    total = rows.get("MemTotal:", [])
    return int(total[0]) * 1024 if total and total[0].isdecimal() else None
