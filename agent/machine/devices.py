"""The accelerators of this machine, one function a vendor. A fact that cannot be read is None, and
a device that cannot be sized is left out: a wrong figure would admit what does not fit."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from agent.system.tool import run_tool
from reconciler.api.fleetnode import Device
from reconciler.api.vendors import VENDORS

_MIB = 2**20
_MOST_READ = 64 << 10  # characters; sysfs itself ends at a page
_NOT_ITS_OWN = ("[N/A]", "[Not Supported]")  # nvidia-smi of parts that share the machine's memory
_NVML = "libnvidia-ml.so.1"  # what pynvml opens
# AMD parts whose graphics share the machine's memory: what they call video memory is a small part
# set aside, and models live in the rest. From LLVM's table of AMDGPU processors, kind APU.
_AMD_INTEGRATED = re.compile(r"gfx(90[29c]|1013|103[3567]|1103|115[0123])")
# Version of the graphics core -> architecture, the digits of the
# two differ for many. From kgd2kfd_probe of Linux' amdgpu driver (amdkfd/kfd_device.c).
_AMD_CORES: Mapping[tuple[int | None, ...], str] = MappingProxyType(
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


_AMD_ID = f"0x{VENDORS['AMD'].pci_id:04x}"  # as sysfs writes it


def load_nvml() -> Any | None:  # noqa: ANN401 - a C library's module, without types
    """NVIDIA's library, initialised; None without a driver or the Python binding."""
    try:
        ctypes.CDLL(_NVML)  # checked first: its binding costs an idle agent 2 MiB
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
    """Where facts are read from. Tests use a recorded one."""

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
    for index in range(nvidia_count(nvml)):
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


def nvidia_count(nvml: Any) -> int:  # noqa: ANN401 - see load_nvml
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:  # the driver is being replaced
        return 0


def _nvidia_memory(nvml: Any, handle: Any) -> int | Literal["unified"]:  # noqa: ANN401 - see load_nvml
    """Parts that share the machine's memory (GB10) have none of their own to report."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError_NotSupported:
        return "unified"


def _nvidia_by_tool(machine: Machine) -> Iterator[Device]:
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


def amd_cards(root: Path) -> Iterator[tuple[Path, Device]]:
    """Every card with its folder, from the kernel driver: video memory a card, the architecture
    from its compute node, or from the discovery table."""
    targets = _amd_targets(root)
    for card in sorted((root / "sys/class/drm").glob("card[0-9]*")):
        device = card / "device"
        if read_line(device / "vendor") != _AMD_ID:
            continue
        arch = targets.get(amd_address(device)) or _amd_discovered(device)
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
        facts = compute_node(node)
        if version := facts.get("gfx_target_version", 0):
            found[facts.get("location_id", 0)] = _gfx(version)
    return found


def compute_node(node: Path) -> dict[str, int]:
    """The properties of one node of the compute driver. A container without the device reads none
    of them."""
    lines = (line.split() for line in (read_line(node / "properties") or "").splitlines())
    return {w[0]: int(w[1]) for w in lines if len(w) == 2 and w[1].isdecimal()}


def _gfx(version: int) -> str:
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _amd_discovered(device: Path) -> str | None:
    """The architecture by the version of the card's graphics core, which anybody may read."""
    core = device / "ip_discovery/die/0/GC/0"
    version = tuple(read_number(core / part) for part in ("major", "minor", "revision"))
    return _AMD_CORES.get(version)


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
    """A small file of the kernel's; the beginning of one that is not small."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_MOST_READ).strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    text = read_line(path)
    return int(text) if text and text.isdecimal() and len(text) < 20 else None
