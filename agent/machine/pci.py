"""The GPUs on the PCI bus, as sysfs lists them: also those that no driver answers for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.machine.machine import read_line
from reconciler.api.vendors import VENDORS

# Others that show a picture are of servers' management controllers and of virtual machines, and run
# no model.
_BY_ID = {row.pci_id: name for name, row in VENDORS.items()}
_DISPLAY, _PROCESSING = 0x03, 0x1200
_PASSED_ON = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One GPU. `driver` None: none is bound to it."""

    vendor: str
    address: str
    device: int
    driver: str | None = None

    @property
    def is_passed_on(self) -> bool:
        """Kept for a virtual machine: nothing on this node can use it."""
        return self.driver in _PASSED_ON

    @property
    def is_integrated(self) -> bool:
        """Intel's own graphics sit on the first bus; cards are behind a bridge."""
        return self.vendor == "Intel" and self.address.startswith("0000:00:")


def pci_gpus(root: Path) -> tuple[PciGpu, ...]:
    """In the order of their addresses."""
    return tuple(_gpus(root))


def _gpus(root: Path) -> Iterator[PciGpu]:
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        numbers = [_hex(folder / name) for name in ("class", "vendor", "device")]
        kind, vendor, device = numbers
        if kind is None or vendor is None or device is None or vendor not in _BY_ID:
            continue
        name = _BY_ID[vendor]
        only_computes = kind >> 8 == _PROCESSING and VENDORS[name].only_computes
        if kind >> 16 == _DISPLAY or only_computes:
            yield PciGpu(name, folder.name, device, _driver(folder))


def _driver(folder: Path) -> str | None:
    try:
        return (folder / "driver").readlink().name
    except OSError:
        return None


def _hex(path: Path) -> int | None:
    text = read_line(path) or ""
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text) else None
