"""The accelerators of this machine, one function a vendor. A fact that cannot be read is None, and
a device that cannot be sized is left out: a wrong figure would admit what does not fit."""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reconciler.api.fleetnode import Device

_TOOL_DEADLINE_S = 10.0
_MIB = 2**20
_NVML = "libnvidia-ml.so.1"  # what pynvml opens
# AMD parts whose graphics share the machine's memory: what they call video memory is a small part
# set aside, and models live in the rest. From LLVM's table of AMDGPU processors, kind APU.
_AMD_INTEGRATED = re.compile(r"gfx(90[29c]|1013|103[3567]|1103|115[0123])")


def run_tool(program: str, *args: str) -> str | None:
    """What a tool prints, or None where it is missing, fails or hangs."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *args], capture_output=True, text=True, timeout=_TOOL_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def load_nvml() -> Any | None:  # noqa: ANN401 - a C library's module, without types
    """NVIDIA's library, initialised; None where there is no driver, or no binding to it."""
    try:
        ctypes.CDLL(_NVML)  # asked first: its binding costs an idle agent 2 MiB
        import pynvml
    except (OSError, ImportError):
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


@dataclass(frozen=True, slots=True)
class Machine:
    """Where facts are read from. Tests give a recorded one."""

    root: Path = Path("/")
    tool: Callable[..., str | None] = run_tool
    nvml: Callable[[], Any | None] = field(default=load_nvml)


def devices(system: Literal["linux", "darwin"], machine: Machine) -> tuple[Device, ...]:
    """Every accelerator that models can use, in the order in which engines count them."""
    if system == "darwin":
        return tuple(_apple(machine))
    return (*_nvidia(machine), *(device for _, device in amd_cards(machine.root)))


def _nvidia(machine: Machine) -> Iterator[Device]:
    nvml = machine.nvml()
    if nvml is None:
        yield from _nvidia_by_tool(machine)
        return
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):  # one that fell off the bus must not hide others
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            yield Device(
                vendor="NVIDIA",
                product=_text(nvml.nvmlDeviceGetName(handle)),
                arch=f"sm_{major}{minor}",
                memory=_nvidia_memory(nvml, handle),
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            )


def _nvidia_memory(nvml: Any, handle: Any) -> int | Literal["unified"]:  # noqa: ANN401 - see load_nvml
    """Parts that share the machine's memory (GB10) have none of their own to report."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError_NotSupported:
        return "unified"


def _nvidia_by_tool(machine: Machine) -> Iterator[Device]:
    """The same from nvidia-smi, which comes with the driver; the binding is an extra of ours."""
    query = "name,memory.total,uuid,compute_cap"
    text = machine.tool("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    for line in (text or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 4:
            continue
        product, memory, uuid, capability = parts
        yield Device(
            vendor="NVIDIA",
            product=product,
            arch="sm_" + capability.replace(".", ""),
            memory=int(memory) * _MIB if memory.isdigit() else "unified",
            uuid=uuid,
        )


def amd_cards(root: Path) -> Iterator[tuple[Path, Device]]:
    """Every card with its folder, from the kernel driver: video memory a card, the architecture
    from its compute node."""
    targets = _amd_targets(root)
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        if read_line(device / "vendor") != "0x1002":
            continue
        arch = targets.get(amd_address(device))
        total = read_number(device / "mem_info_vram_total")
        integrated = arch is not None and _AMD_INTEGRATED.fullmatch(arch) is not None
        if total is None and not integrated:
            continue
        found = Device(
            vendor="AMD",
            product=read_line(device / "product_name") or None,
            arch=arch,
            memory="unified" if integrated or total is None else total,
            uuid=read_line(device / "unique_id") or None,
        )
        yield device, found


def _amd_targets(root: Path) -> dict[int, str]:
    """PCI address (as KFD's location_id) -> gfx name of every compute node."""
    found = {}
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*"):
        lines = (line.split() for line in (read_line(node / "properties") or "").splitlines())
        facts = {words[0]: words[1] for words in lines if len(words) == 2}
        version = int(facts.get("gfx_target_version", "0"))
        if version:
            major, minor, step = version // 10000, version // 100 % 100, version % 100
            found[int(facts.get("location_id", "0"))] = f"gfx{major}{minor:x}{step:x}"
    return found


def amd_address(device: Path) -> int:
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


def _apple(machine: Machine) -> Iterator[Device]:
    """One for Apple silicon, which shares the machine's memory; other Macs have none."""
    brand = (machine.tool("sysctl", "-n", "machdep.cpu.brand_string") or "").strip()
    if brand.startswith("Apple"):
        yield Device(vendor="Apple", product=brand.removeprefix("Apple "), memory="unified")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def read_line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    text = read_line(path)
    return int(text) if text and text.isdecimal() else None
