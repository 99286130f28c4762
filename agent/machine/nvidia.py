"""NVIDIA: by its library, else by nvidia-smi, which comes with the driver."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, Literal

from agent.machine.driver import Driver, MeasuredDevice, Reading
from agent.machine.machine import Machine
from reconciler.api.fleetnode import Device

_MIB = 2**20
_NOT_ITS_OWN = ("[N/A]", "[Not Supported]")  # nvidia-smi of parts that share the machine's memory


def _devices(machine: Machine) -> Iterator[Device]:
    nvml = machine.nvml()
    if nvml is None:
        yield from _by_tool(machine)
        return
    for index in range(nvidia_count(nvml)):
        with contextlib.suppress(nvml.NVMLError):  # one that fell off the bus must not hide others
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            yield Device(
                vendor="NVIDIA",
                product=_text(nvml.nvmlDeviceGetName(handle)),
                arch=f"sm_{major}{minor}",
                memory=_memory_of(nvml, handle),
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            )


def nvidia_count(nvml: Any) -> int:  # noqa: ANN401 - see machine.load_nvml
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:  # the driver is being replaced
        return 0


def _memory_of(nvml: Any, handle: Any) -> int | Literal["unified"]:  # noqa: ANN401 - see machine.load_nvml
    """Parts that share the machine's memory (GB10) have none of their own to report."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError_NotSupported:
        return "unified"


def _by_tool(machine: Machine) -> Iterator[Device]:
    """The same from nvidia-smi, which comes with the driver; the binding is an optional
    dependency."""
    query = "name,memory.total,uuid,compute_cap"
    text = machine.tool("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    for line in (text or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 4:
            continue
        product, memory, uuid, capability = parts
        if not memory.isdecimal() and memory not in _NOT_ITS_OWN:
            continue  # an error in place of the figure: a lost GPU is not unified memory
        is_known = re.fullmatch(r"\d{1,2}\.\d", capability, re.ASCII)
        yield Device(
            vendor="NVIDIA",
            product=product,
            arch="sm_" + capability.replace(".", "") if is_known else None,
            memory=int(memory) * _MIB if memory.isdecimal() else "unified",
            uuid=uuid,
        )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _memory(machine: Machine) -> Iterator[MeasuredDevice]:
    nvml = machine.nvml()
    if nvml is None:
        return
    for index in range(nvidia_count(nvml)):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except nvml.NVMLError:  # fell off the bus, or has no memory of its own
            continue
        by_pid = _by_pid(nvml, handle)
        yield MeasuredDevice(_text(uuid), int(memory.total), int(memory.used), by_pid)


def _by_pid(nvml: Any, handle: Any) -> dict[int, int] | None:  # noqa: ANN401 - see above
    """A process that computes and draws is in both lists, with the same figure."""
    try:
        running = [
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        ]
    except nvml.NVMLError:
        return None
    if any(p.usedGpuMemory is None or not _is_here(p.pid) for p in running):
        return None
    return {int(p.pid): int(p.usedGpuMemory) for p in running}


def _is_here(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _readings(machine: Machine) -> Iterator[Reading]:
    nvml = machine.nvml()
    if nvml is not None:
        for index in range(nvidia_count(nvml)):
            yield _reading(nvml, index)
        return
    for line in (_asked(machine) or "").splitlines():
        yield _reading_by_tool(line)


def _reading(nvml: Any, index: int) -> Reading:  # noqa: ANN401 - see above
    """One that fell off the bus says nothing, one that is cut into slices not how busy it is."""
    degrees = busy = None
    with contextlib.suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        with contextlib.suppress(nvml.NVMLError):
            degrees = float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    return degrees, busy


def _asked(machine: Machine) -> str | None:
    query = "--query-gpu=temperature.gpu,utilization.gpu"
    return machine.tool("nvidia-smi", query, "--format=csv,noheader,nounits")


def _reading_by_tool(line: str) -> Reading:
    degrees, _, busy = (part.strip() for part in line.partition(","))
    return (
        float(degrees) if re.fullmatch(r"[0-9]{1,3}", degrees) else None,
        int(busy) / 100 if re.fullmatch(r"[0-9]{1,3}", busy) else None,
    )


def _is_awake(machine: Machine) -> bool:
    """The tool wakes a driver that is not kept awake, which takes a second."""
    return machine.nvml() is not None


DRIVER = Driver(_devices, _memory, _readings, _is_awake)
