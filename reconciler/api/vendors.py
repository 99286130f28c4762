"""Who makes accelerators: a row each, with the names by which everything else knows them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Accelerator = Literal["cpu", "metal", "cuda", "rocm", "intel", "vulkan"]


@dataclass(frozen=True, slots=True)
class Vendor:
    """`accelerator` is what Models, pools and images call its devices. `resource` is by what pods
    ask its device plugin for a whole GPU, which is also the usual taint's key. `only_computes`: its
    PCI devices of the class of processing accelerators are GPUs; others' are NPUs. `variables` are
    its libraries' own, which choose devices: what uses them inherits these."""

    accelerator: Accelerator
    pci_id: int  # https://pci-ids.ucw.cz
    resource: str | None = None
    only_computes: bool = False
    variables: tuple[str, ...] = ()


VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        "Apple": Vendor("metal", 0x106B),
        "NVIDIA": Vendor(
            "cuda",
            0x10DE,
            "nvidia.com/gpu",
            variables=(
                "CUDA_DEVICE_ORDER",
                "CUDA_VISIBLE_DEVICES",
                "NVIDIA_DRIVER_CAPABILITIES",
                "NVIDIA_VISIBLE_DEVICES",
            ),
        ),
        "AMD": Vendor(
            "rocm",
            0x1002,
            "amd.com/gpu",
            only_computes=True,  # MI300X
            variables=("HIP_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ROCR_VISIBLE_DEVICES"),
        ),
        "Intel": Vendor("intel", 0x8086, "gpu.intel.com/i915", variables=("ZE_AFFINITY_MASK",)),
    }
)
"""By the vendor's name in the documents of nodes and in labels."""

GPU_RESOURCES = frozenset(row.resource for row in VENDORS.values() if row.resource)
"""Resources of whole GPUs, not of parts of one, such as nvidia.com/mig-1g.5gb."""

# nvidia.com/mig-1g.10gb, -1g.10gb.me, -1c.3g.40gb
_SLICE = re.compile(r"nvidia\.com/mig-(\d+c\.)?\d+g\.(?P<gb>[1-9]\d{0,3})gb(\.[a-z.]+)?", re.ASCII)
_BY_ACCELERATOR: Mapping[str, str] = {row.accelerator: name for name, row in VENDORS.items()}
_BY_DOMAIN = {row.resource.partition("/")[0]: name for name, row in VENDORS.items() if row.resource}


def maker_of(accelerator: str) -> str | None:
    """The vendor of a kind of device; None: of several, or of none."""
    return _BY_ACCELERATOR.get(accelerator)


def resource_of(accelerator: str | None) -> str | None:
    """The resource by which pods ask for devices of a kind."""
    vendor = _BY_ACCELERATOR.get(accelerator or "")
    return VENDORS[vendor].resource if vendor else None


def slice_bytes(resource: str, labels: Mapping[str, str]) -> int | None:
    """The memory of a slice of a GPU (MIG) by the labels of its node, which say it exactly, else by
    its own name, in gigabytes of 10^9; None: the resource is no slice."""
    named = _SLICE.fullmatch(resource)
    if named is None:
        return None
    exact = labels.get(f"{resource}.memory", "")
    is_exact = exact.isascii() and exact.isdecimal() and len(exact) < 10
    return int(exact) * 2**20 if is_exact and int(exact) else int(named["gb"]) * 10**9


def vendor_of(resource: str) -> str | None:
    """Whose GPUs, or parts of them (`nvidia.com/mig-1g.5gb`), a resource stands for."""
    domain, slash, _ = resource.partition("/")
    return _BY_DOMAIN.get(domain) if slash else None
