"""NVIDIA GPUs that are cut into slices (MIG): a pod gets a slice, and never the whole."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from agent.machine.machine import Machine
from agent.machine.nvidia import nvidia_count

Slices = Mapping[str, tuple[int | None, ...]]
"""UUID of a GPU in this mode -> the memory of each of its slices in bytes, None where only the
number of slices can be had. A GPU without a slice has none to give."""

_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[\w-]+)\)")
_SLICE = re.compile(r"\s+MIG .*\(UUID: MIG-")


def mig_slices(machine: Machine) -> Slices:
    nvml = machine.nvml()
    return _by_tool(machine) if nvml is None else _by_library(nvml)


def _by_library(nvml: Any) -> Slices:  # noqa: ANN401 - see machine.load_nvml
    slices = {}
    for index in range(nvidia_count(nvml)):
        with contextlib.suppress(nvml.NVMLError):  # not a model that can be cut, or a lost one
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
            if current:
                uuid = nvml.nvmlDeviceGetUUID(handle)
                text = uuid.decode(errors="replace") if isinstance(uuid, bytes) else uuid
                slices[text] = _of_gpu(nvml, handle)
    return slices


def _of_gpu(nvml: Any, handle: Any) -> tuple[int, ...]:  # noqa: ANN401 - see above
    sizes = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):  # nothing at this place
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            sizes.append(int(nvml.nvmlDeviceGetMemoryInfo(part).total))
    return tuple(sizes)


def _by_tool(machine: Machine) -> Slices:
    """nvidia-smi lists the slices by names that round their memory up: it stays unknown."""
    query = ("--query-gpu=uuid,mig.mode.current", "--format=csv,noheader")
    rows = [row.split(", ") for row in (machine.tool("nvidia-smi", *query) or "").splitlines()]
    slices = {row[0]: 0 for row in rows if len(row) == 2 and row[1].strip() == "Enabled"}
    if not slices:
        return {}
    gpu = ""
    for line in (machine.tool("nvidia-smi", "-L") or "").splitlines():
        if is_gpu := _GPU.match(line):
            gpu = is_gpu[1]
        elif _SLICE.match(line) and gpu in slices:
            slices[gpu] += 1
    return {uuid: (None,) * count for uuid, count in slices.items()}
