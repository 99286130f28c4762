"""AMD: by the kernel driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from agent.machine.driver import Driver, MeasuredDevice, Reading
from agent.machine.machine import Machine, read_line, read_number
from reconciler.api.fleetnode import Device
from reconciler.api.vendors import VENDORS

_ID = f"0x{VENDORS['AMD'].pci_id:04x}"  # as sysfs writes it
# AMD parts whose graphics share the machine's memory: what they call video memory is a small part
# set aside, and models live in the rest. From LLVM's table of AMDGPU processors, kind APU.
_INTEGRATED = re.compile(r"gfx(90[29c]|1013|103[3567]|1103|115[0123])")
# Version of the graphics core -> architecture, the digits of the
# two differ for many. From kgd2kfd_probe of Linux' amdgpu driver (amdkfd/kfd_device.c).
_CORES: Mapping[tuple[int | None, ...], str] = MappingProxyType(
    {
        (9, 0, 1): "gfx900", (9, 3, 0): "gfx90c", (9, 4, 0): "gfx906", (9, 4, 1): "gfx908",
        (9, 4, 2): "gfx90a", (9, 4, 3): "gfx942", (9, 4, 4): "gfx942", (9, 5, 0): "gfx950",
        (10, 1, 10): "gfx1010", (10, 1, 1): "gfx1012", (10, 1, 2): "gfx1011",
        (10, 3, 0): "gfx1030", (10, 3, 1): "gfx1033", (10, 3, 2): "gfx1031",
        (10, 3, 3): "gfx1035", (10, 3, 4): "gfx1032", (10, 3, 5): "gfx1034",
        (10, 3, 6): "gfx1036", (10, 3, 7): "gfx1036",
        (11, 0, 0): "gfx1100", (11, 0, 1): "gfx1103", (11, 0, 2): "gfx1102",
        (11, 0, 3): "gfx1101", (11, 0, 4): "gfx1103",
        (11, 5, 0): "gfx1150", (11, 5, 1): "gfx1151", (11, 5, 2): "gfx1152",
        (12, 0, 0): "gfx1200", (12, 0, 1): "gfx1201",
    }
)  # fmt: skip


def amd_cards(root: Path) -> Iterator[tuple[Path, Device]]:
    """Every card with its folder, from the kernel driver: video memory a card, the architecture
    from its compute node, or from the discovery table."""
    targets = _targets(root)
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        if read_line(device / "vendor") != _ID:
            continue
        arch = targets.get(_address(device)) or _discovered(device)
        total = read_number(device / "mem_info_vram_total")
        integrated = arch is not None and _INTEGRATED.fullmatch(arch) is not None
        if total is None and not integrated:
            continue
        device_facts = Device(
            vendor="AMD",
            product=read_line(device / "product_name") or None,
            arch=arch,
            memory="unified" if integrated or total is None else total,
            uuid=read_line(device / "unique_id") or None,
        )
        yield device, device_facts


def _targets(root: Path) -> dict[int, str]:
    """PCI address (as KFD's location_id) -> gfx name of every compute node."""
    targets = {}
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*"):
        facts = _compute_node(node)
        if version := facts.get("gfx_target_version", 0):
            targets[facts.get("location_id", 0)] = _gfx(version)
    return targets


def _compute_node(node: Path) -> dict[str, int]:
    """The properties of one node of the compute driver. A container without the device reads none
    of them."""
    lines = (line.split() for line in (read_line(node / "properties") or "").splitlines())
    return {w[0]: int(w[1]) for w in lines if len(w) == 2 and w[1].isdecimal()}


def _gfx(version: int) -> str:
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _discovered(device: Path) -> str | None:
    """The architecture by the version of the card's graphics core, which anybody may read."""
    core = device / "ip_discovery/die/0/GC/0"
    version = tuple(read_number(core / part) for part in ("major", "minor", "revision"))
    return _CORES.get(version)


def _address(device: Path) -> int:
    """`0000:03:00.0` -> bus << 8 | device << 3 | function, as the compute driver counts."""
    slots = [
        line.partition("=")[2]
        for line in (read_line(device / "uevent") or "").splitlines()
        if line.startswith("PCI_SLOT_NAME=")
    ]
    try:
        _, bus, rest = slots[0].split(":")
        slot, _, function = rest.partition(".")
        return int(bus, 16) << 8 | int(slot, 16) << 3 | int(function, 16)
    except (IndexError, ValueError):
        return -1


def _memory(machine: Machine) -> Iterator[MeasuredDevice]:
    root = machine.root
    gpu_ids = _gpu_ids(root)
    for folder, device in amd_cards(root):
        used = read_number(folder / "mem_info_vram_used")
        if isinstance(device.memory, int) and used is not None:
            gpu_id = gpu_ids.get(_address(folder))
            by_pid = None if gpu_id is None else _by_pid(root, gpu_id)
            yield MeasuredDevice(device.uuid, device.memory, used, by_pid)


def _gpu_ids(root: Path) -> dict[int, int]:
    """PCI address (as KFD's location_id) -> the compute driver's number of the device."""
    gpu_ids = {}
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*"):
        if gpu_id := read_number(node / "gpu_id"):
            gpu_ids[_compute_node(node).get("location_id", -1)] = gpu_id
    return gpu_ids


def _by_pid(root: Path, gpu_id: int) -> dict[int, int] | None:
    """From the compute driver. A process that only draws, or computes with Vulkan, is not in it."""
    folder = root / "sys/class/kfd/kfd/proc"
    if not folder.is_dir():
        return None
    sizes = {
        int(process.name): read_number(process / f"vram_{gpu_id}")
        for process in folder.glob("[0-9]*")
    }
    return {pid: size for pid, size in sizes.items() if size is not None}


def _readings(machine: Machine) -> Iterator[Reading]:
    for card, _ in amd_cards(machine.root):
        busy = read_number(card / "gpu_busy_percent")
        places = sorted((card / "hwmon").glob("hwmon*/temp1_input"))
        millidegrees = read_number(places[0]) if places else None
        yield (
            None if millidegrees is None else millidegrees / 1000,
            None if busy is None else busy / 100,
        )


def _devices(machine: Machine) -> Iterator[Device]:
    return (device for _, device in amd_cards(machine.root))


def _is_awake(machine: Machine) -> bool:
    return any(amd_cards(machine.root))


DRIVER = Driver(_devices, _memory, _readings, _is_awake)
