"""Which architectures have kernels for weights of 4 bits. Pure.

Such kernels multiply four bytes at once and add them up. The tables list the parts whose hardware
has an instruction for that, from llama.cpp's `ggml_cuda_dp4a` (ggml/src/ggml-cuda/common.cuh): dp4a
of NVIDIA, sdot4 and sudot4 of AMD. Others compute it byte by byte, many times slower.
"""

from __future__ import annotations

import re

_AMD = frozenset(
    {
        *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),  # Vega 20, CDNA 1 to 4
        *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),  # RDNA 2
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152"),  # RDNA 3
        *("gfx1200", "gfx1201"),  # RDNA 4
    }
)
_AMD_WITHOUT = frozenset({"gfx900", "gfx902", "gfx90c", "gfx1010", "gfx1013"})
_NVIDIA_FROM = 61  # GGML_CUDA_CC_DP4A
_NVIDIA_WITHOUT = 62  # of the Tegra X2: its byte instructions are of 6.1 and 7.0 on, but not 6.2


def nvidia_int4(arch: str | None) -> bool | None:
    """None: the architecture is not known."""
    if (match := re.fullmatch(r"sm_(\d{2,3})", arch or "")) is None:
        return None
    return int(match[1]) >= _NVIDIA_FROM and int(match[1]) != _NVIDIA_WITHOUT


def amd_int4(arch: str | None) -> bool | None:
    """None: the architecture is in no table."""
    return arch in _AMD if arch in _AMD | _AMD_WITHOUT else None
