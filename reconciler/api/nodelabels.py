"""The hardware labels of a cluster's node: what is written, and how it is read. Pure.

`fleet-agent label` writes them from what it finds on the machine; pools select by them, and the
scheduler extender filters by them. A fact that is not known has no label: an absent label never
means zero or false.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.api.quantity import parse_bytes

DEFAULT_PREFIX = "flexinfer.ai/"
# Annotations, with the same prefix.
VRAM_MIB = "gpu.vram-mib"  # the exact figure that the label rounds down
NOTE = "gpu.note"  # for people: what the labels cannot say, or why they do not
COST_PER_HOUR = "cost-per-hour"  # written by people; in any one currency
# How readers of the labelers' metrics find them.
LABELER = "fleet-labels"  # app.kubernetes.io/name of their pods
METRICS_PORT = "metrics"  # the name of their port
GPU_UTILISATION = "fleet_gpu_utilization_ratio"  # by gpu and node, 0 to 1
_UNIFIED = "unified"
_VALUE = re.compile(r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_GIB, _MIB = 2**30, 2**20
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """The facts behind the labels. None: not known, or the node has no GPU."""

    vendor: str | None = None  # NVIDIA, AMD, Intel, Apple
    vram: int | None = None  # bytes, of one GPU
    arch: str | None = None  # sm_89, gfx90a
    int4: bool | None = None  # it has kernels for weights of 4 bits
    count: int | None = None  # GPUs, or the slices that they are cut into (MIG)
    avx512: bool | None = None
    unified: bool = False  # `vram` is a part of the machine's own memory

    def labels(self, prefix: str = DEFAULT_PREFIX) -> dict[str, str]:
        """Labels of what is known. Memory is rounded down to GiB: `24Gi`."""
        values = {
            "gpu.vendor": self.vendor,
            "gpu.vram": None if self.vram is None else f"{self.vram // _GIB}Gi",
            "gpu.arch": self.arch,
            "gpu.int4": _truth(self.int4),
            "gpu.count": None if self.count is None else str(self.count),
            "gpu.memory": _UNIFIED if self.unified else None,
            "cpu.avx512": _truth(self.avx512),
        }
        return {prefix + key: value for key, value in values.items() if value is not None}

    def annotations(self, prefix: str = DEFAULT_PREFIX) -> dict[str, str]:
        return {} if self.vram is None else {prefix + VRAM_MIB: str(self.vram // _MIB)}

    @classmethod
    def read(
        cls,
        labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> NodeLabels:
        """What a node's labels say. A value that makes no sense is not known."""

        def label(key: str) -> str | None:
            return labels.get(prefix + key) or None

        exact = _count((annotations or {}).get(prefix + VRAM_MIB))
        return cls(
            vendor=label("gpu.vendor"),
            vram=_bytes(label("gpu.vram")) if exact is None else exact * _MIB,
            arch=label("gpu.arch"),
            int4=_TRUTH.get(label("gpu.int4") or ""),
            count=_count(label("gpu.count")),
            avx512=_TRUTH.get(label("cpu.avx512") or ""),
            unified=label("gpu.memory") == _UNIFIED,
        )


def archs_of(stated: Collection[object]) -> frozenset[str]:
    """The architectures that a pool's nodes may be labelled with, by what its devices state. Empty:
    any, as one device states none, or what no label can say."""
    known = [arch for arch in stated if isinstance(arch, str) and _VALUE.fullmatch(arch)]
    return frozenset(known) if len(known) == len(stated) else frozenset()


def _truth(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _bytes(text: str | None) -> int | None:
    try:
        return parse_bytes(text)
    except ValueError:
        return None
