"""LLMKube's kinds that ours do not have: those that are read all the same, and what to
write instead of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.llmkube import pools, routers

READ: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"ModelPool": pools.REQUIRED, "ModelRouter": routers.REQUIRED}
)  # with the parts of spec that each must have

INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "GPUQuota": "memory.budget of a FleetNode, or a ResourceQuota, bounds what models take",
        "LoRAAdapter": "merge the adapter into the weights, and declare these as a Model",
    }
)
