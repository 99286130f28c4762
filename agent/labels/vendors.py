"""What labelers of vendors have written on the node: NVIDIA's GPU feature discovery, AMD's node
labeller, Node Feature Discovery. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MIB, _GIB = 2**20, 2**30
_AVX512 = "feature.node.kubernetes.io/cpu-cpuid.AVX512F"


@dataclass(frozen=True, slots=True)
class StatedGpu:
    """One GPU of the node. `is_rounded`: the driver knows its memory better."""

    vram: int | None = None
    arch: str | None = None
    count: int | None = None
    is_rounded: bool = False


def stated_gpu(vendor: str, labels: Mapping[str, str]) -> StatedGpu:
    """Of a value that makes no sense nothing is known."""
    if vendor == "NVIDIA":
        major, minor = (_number(labels, f"nvidia.com/gpu.compute.{part}", 0) for part in _PARTS)
        mib = _number(labels, "nvidia.com/gpu.memory")
        return StatedGpu(
            vram=None if mib is None else mib * _MIB,
            arch=None if major is None or minor is None else f"sm_{major}{minor}",
            count=_number(labels, "nvidia.com/gpu.count"),
        )
    if vendor == "AMD":
        for name in ("amd.com/gpu.vram", "beta.amd.com/gpu.vram"):
            if found := re.fullmatch(r"([0-9]{1,5})G", labels.get(name, "")):
                return StatedGpu(vram=int(found[1]) * _GIB, is_rounded=True)
    return StatedGpu()


def states_avx512(labels: Mapping[str, str]) -> bool | None:
    """It writes what there is, and nothing about what there is not."""
    return True if labels.get(_AVX512) == "true" else None


_PARTS = ("major", "minor")


def _number(labels: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = labels.get(name, "")
    is_number = re.fullmatch(r"[0-9]{1,9}", text) is not None
    return int(text) if is_number and int(text) >= least else None
