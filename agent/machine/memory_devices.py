"""How much of each device's own memory is used, and by whom. Unknown is None, never 0.

NVIDIA by its library, AMD by the kernel driver. Devices that share the machine's memory are left
out: what they use is the machine's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.machine.devices import (
    Machine,
    amd_address,
    amd_cards,
    compute_node,
    nvidia_count,
    read_number,
)


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """One device. `by_pid` is None if its users are unknown: without permission, or in a container
    whose pids differ from the driver's."""

    uuid: str | None
    total: int
    used: int
    by_pid: Mapping[int, int] | None


def device_memory(machine: Machine) -> tuple[MeasuredDevice, ...]:
    """Every device with memory of its own, in the order of `devices.devices`."""
    return (*_nvidia(machine.nvml()), *_amd(machine.root))


def of_stated(
    found: tuple[MeasuredDevice, ...], uuid: str | None, index: int
) -> MeasuredDevice | None:
    """The device that a FleetNode states: by its uuid if stated, else by its index."""
    if uuid is not None:
        return next((device for device in found if device.uuid == uuid), None)
    return found[index] if index < len(found) else None


def _nvidia(nvml: Any | None) -> Iterator[MeasuredDevice]:  # noqa: ANN401 - see devices.load_nvml
    if nvml is None:
        return
    for index in range(nvidia_count(nvml)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError:  # fell off the bus, or has no memory of its own
            continue
        text = uuid.decode(errors="replace") if isinstance(uuid, bytes) else uuid
        by_pid = _nvidia_by_pid(nvml, handle)
        yield MeasuredDevice(text, int(memory.total), int(memory.used), by_pid)


def _nvidia_by_pid(nvml: Any, handle: Any) -> dict[int, int] | None:  # noqa: ANN401 - see above
    """A process that computes and draws is in both lists, with the same figure."""
    try:
        found = [
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        ]
    except nvml.NVMLError:
        return None
    if any(p.usedGpuMemory is None or not _is_here(p.pid) for p in found):
        return None
    return {int(p.pid): int(p.usedGpuMemory) for p in found}


def _is_here(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _amd(root: Path) -> Iterator[MeasuredDevice]:
    gpu_ids = _gpu_ids(root)
    for folder, device in amd_cards(root):
        used = read_number(folder / "mem_info_vram_used")
        if isinstance(device.memory, int) and used is not None:
            gpu_id = gpu_ids.get(amd_address(folder))
            by_pid = None if gpu_id is None else _amd_by_pid(root, gpu_id)
            yield MeasuredDevice(device.uuid, device.memory, used, by_pid)


def _gpu_ids(root: Path) -> dict[int, int]:
    """PCI address (as KFD's location_id) -> the compute driver's number of the device."""
    found = {}
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*"):
        if gpu_id := read_number(node / "gpu_id"):
            found[compute_node(node).get("location_id", -1)] = gpu_id
    return found


def _amd_by_pid(root: Path, gpu_id: int) -> dict[int, int] | None:
    """From the compute driver. A process that only draws, or computes with Vulkan, is not in it."""
    folder = root / "sys/class/kfd/kfd/proc"
    if not folder.is_dir():
        return None
    sizes = {
        int(process.name): read_number(process / f"vram_{gpu_id}")
        for process in folder.glob("[0-9]*")
    }
    return {pid: size for pid, size in sizes.items() if size is not None}
