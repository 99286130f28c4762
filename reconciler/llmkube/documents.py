"""LLMKube's kinds that ours do not have: what to write instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "ModelPool": (
            "write one InferenceService with `runtime: llamacpp-router`, its members in `models`"
            " and `router.resident: 1`: it swaps them on request"
        ),
        "ModelRouter": (
            "clients ask each InferenceService by its own URL, which status prints; one with"
            " `runtime: llamacpp-router` and `models` serves many behind one"
        ),
        "GPUQuota": "memory.budget of a FleetNode, or a ResourceQuota, bounds what models take",
        "LoRAAdapter": "merge the adapter into the weights, and declare these as a Model",
    }
)
