"""What the labels of a node follow from by its vendor: a row each. Pure.

Vendors' own labelers have often been there before: NVIDIA's GPU feature discovery, AMD's node
labeller, Node Feature Discovery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.labels.int4 import amd_int4, nvidia_int4

_MIB, _GIB = 2**20, 2**30
_AVX512 = "feature.node.kubernetes.io/cpu-cpuid.AVX512F"


@dataclass(frozen=True, slots=True)
class StatedGpu:
    """One GPU of the node. `is_rounded`: the driver knows its memory better."""

    vram: int | None = None
    arch: str | None = None
    count: int | None = None
    is_rounded: bool = False


@dataclass(frozen=True, slots=True)
class VendorLabels:
    """`stated` reads what its own labeler has written; of a value that makes no sense nothing is
    known. `int4` says whether an architecture has kernels for weights of 4 bits; None: it is in no
    table. `kernel_tells`: memory and architecture, where a driver is loaded."""

    stated: Callable[[Mapping[str, str]], StatedGpu] = lambda labels: StatedGpu()
    int4: Callable[[str | None], bool | None] = lambda arch: None
    kernel_tells: bool = True


def states_avx512(labels: Mapping[str, str]) -> bool | None:
    """It writes what there is, and nothing about what there is not."""
    return True if labels.get(_AVX512) == "true" else None


def _nvidia(labels: Mapping[str, str]) -> StatedGpu:
    major, minor = (
        _number(labels, f"nvidia.com/gpu.compute.{part}", 0) for part in ("major", "minor")
    )
    mib = _number(labels, "nvidia.com/gpu.memory")
    return StatedGpu(
        vram=None if mib is None else mib * _MIB,
        arch=None if major is None or minor is None else f"sm_{major}{minor}",
        count=_number(labels, "nvidia.com/gpu.count"),
    )


def _amd(labels: Mapping[str, str]) -> StatedGpu:
    for name in ("amd.com/gpu.vram", "beta.amd.com/gpu.vram"):
        if match := re.fullmatch(r"([0-9]{1,5})G", labels.get(name, "")):
            return StatedGpu(vram=int(match[1]) * _GIB, is_rounded=True)
    return StatedGpu()


def _number(labels: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = labels.get(name, "")
    is_number = re.fullmatch(r"[0-9]{1,9}", text) is not None
    return int(text) if is_number and int(text) >= least else None


VENDOR_LABELS: Mapping[str, VendorLabels] = MappingProxyType(
    {
        "Apple": VendorLabels(int4=lambda arch: True),  # Metal kernels of llama.cpp and MLX
        "NVIDIA": VendorLabels(_nvidia, nvidia_int4),
        "AMD": VendorLabels(_amd, amd_int4),
        "Intel": VendorLabels(kernel_tells=False),
    }
)
