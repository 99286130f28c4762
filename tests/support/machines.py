"""Machines as their drivers and kernels answer, from a few lines of YAML
in `tests/cases/machines`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from agent.labels.facts import Facts, read_facts
from agent.machine.drivers import System
from agent.machine.machine import Machine

CASES = Path(__file__).parents[1] / "cases" / "machines"
MIB = 2**20


class NvmlError(Exception):
    pass


class NotSupported(NvmlError):
    pass


class RecordedNvml:
    """NVIDIA's library as its binding calls it. Of a GPU that is `lost` it says nothing."""

    NVMLError = NvmlError
    NVMLError_NotSupported = NotSupported
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: Mapping[str, Any]) -> None:
        """`name`, `mib` (None: not supported), `capability`; `mig`: MiB of each slice; `degrees`,
        `busy` in percent."""
        self._gpus = gpus

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self._gpus[index].get("lost"):
            raise NvmlError("GPU is lost")
        return {"uuid": f"GPU-{index}", **self._gpus[index]}

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str:
        return str(handle["name"])

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> bytes:
        return str(handle["uuid"]).encode()

    def nvmlDeviceGetCudaComputeCapability(self, handle: dict[str, Any]) -> tuple[int, int]:
        major, minor = str(handle["capability"]).split(".")
        return int(major), int(minor)

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:
        if handle["mib"] is None:
            raise NotSupported
        return SimpleNamespace(total=handle["mib"] * MIB)

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> tuple[int, int]:
        if "mig" not in handle:
            raise NotSupported
        return 1, 1

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], place: int) -> Any:
        if place >= len(handle["mig"]):
            raise NvmlError("not found")
        return {"mib": handle["mig"][place]}

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> int:
        return int(handle.get("degrees", 40))

    def nvmlDeviceGetUtilizationRates(self, handle: dict[str, Any]) -> Any:
        if "busy" not in handle:
            raise NotSupported
        return SimpleNamespace(gpu=handle["busy"])


@dataclass(frozen=True)
class Case:
    """One machine, and what its node is to be labelled with (names without their prefix)."""

    machine: Machine
    system: System
    labels_of_others: dict[str, str]
    labels: dict[str, str]
    annotations: dict[str, str]

    def facts(self) -> Facts:
        return read_facts(self.machine, self.system)


def case_names() -> Sequence[str]:
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def case(name: str, root: Path) -> Case:
    """The files of its kernel are written below `root`."""
    said = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    write(root, dict(_files(said)))
    for line in said.get("pci", ()):
        address, _, _, *driver = line.split()
        if driver:
            (root / "sys/bus/pci/devices" / address / "driver").symlink_to(
                f"../../../bus/pci/drivers/{driver[0]}"
            )
    nvml = RecordedNvml(*said["nvml"]) if "nvml" in said else None
    tools: dict[str, str] = said.get("tools", {})
    return Case(
        Machine(root, lambda program, *args: tools.get(" ".join((program, *args))), lambda: nvml),
        said.get("system", "linux"),
        said.get("others", {}),
        said["labels"],
        said.get("annotations", {}),
    )


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _files(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for line in said.get("pci", ()):
        address, kind, ids, *_ = line.split()
        vendor, device = ids.split(":")
        folder = f"sys/bus/pci/devices/{address}"
        yield f"{folder}/class", f"0x{kind}00\n"
        yield f"{folder}/vendor", f"0x{vendor}\n"
        yield f"{folder}/device", f"0x{device}\n"
    for number, card in enumerate(said.get("amd", ())):
        yield from amd_card(number, **card)
    if "cpu" in said:
        yield "proc/cpuinfo", f"processor\t: 0\nflags\t\t: fpu {said['cpu']}\n"
    if "memory" in said:
        yield "proc/meminfo", f"MemTotal: {said['memory']} kB\nMemAvailable: 1 kB\n"
    yield from said.get("files", {}).items()


def amd_card(
    number: int,
    *,
    address: str,
    core: str | None = None,
    target: int | None = None,
    vram: int | None = None,
    gtt: int | None = None,
    product: str | None = None,
    busy: int | None = None,
    degrees: int | None = None,
) -> Iterator[tuple[str, str]]:
    """`core`: version of its graphics core; `target`: of the compute driver; sizes in MiB."""
    card = f"sys/class/drm/card{number}/device"
    yield f"{card}/vendor", "0x1002\n"
    yield f"{card}/uevent", f"DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n"
    yield f"{card}/unique_id", f"id{number}\n"
    if product is not None:
        yield f"{card}/product_name", f"{product}\n"
    for name, mib in (("vram", vram), ("gtt", gtt)):
        if mib is not None:
            yield f"{card}/mem_info_{name}_total", f"{mib * MIB}\n"
    if core is not None:
        for part, digits in zip(("major", "minor", "revision"), core.split("."), strict=True):
            yield f"{card}/ip_discovery/die/0/GC/0/{part}", f"{digits}\n"
    if target is not None:
        bus = int(address.split(":")[1], 16)
        node = f"sys/class/kfd/kfd/topology/nodes/{number + 1}/properties"
        yield node, f"simd_count 96\ngfx_target_version {target}\nlocation_id {bus << 8}\n"
    if busy is not None:
        yield f"{card}/gpu_busy_percent", f"{busy}\n"
    if degrees is not None:
        yield f"{card}/hwmon/hwmon3/temp1_input", f"{degrees * 1000}\n"
