"""How much memory a served model needs, from its header or config and its settings. Pure."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from reconciler.memory.devices import OnDevices, by_layers, evenly
from reconciler.memory.drafting import beside_draft, settings_of_draft
from reconciler.memory.estimate import estimate_llamacpp
from reconciler.memory.facts import (
    CACHE_TYPES,
    TOKENS_COMPARED,
    Drafting,
    MemoryEstimate,
    MemorySettings,
    ModelFacts,
)
from reconciler.memory.folders import MLX, VLLM, estimate_mlx, estimate_vllm
from reconciler.memory.projector import beside_projector, is_projector

__all__ = [
    "CACHE_TYPES",
    "MLX",
    "TOKENS_COMPARED",
    "VLLM",
    "Drafting",
    "MemoryEstimate",
    "MemorySettings",
    "ModelFacts",
    "OnDevices",
    "beside_draft",
    "beside_projector",
    "estimate",
    "is_projector",
    "on_devices",
    "settings_of_draft",
]

_BY_ENGINE: Mapping[str, Callable[[ModelFacts, MemorySettings], MemoryEstimate]] = MappingProxyType(
    {"llama.cpp": estimate_llamacpp, "mlx": estimate_mlx, "vllm": estimate_vllm}
)


def estimate(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """Predict the memory of one process that serves one model. Never raises."""
    return _BY_ENGINE[settings.engine](facts, settings)


def on_devices(
    facts: ModelFacts, settings: MemorySettings, made: MemoryEstimate, memory: Sequence[int]
) -> OnDevices:
    """Split an estimate between the machine and devices with so much memory each. Never raises."""
    if settings.engine == "llama.cpp":
        return by_layers(facts, settings, made, memory)
    return evenly(made, len(memory))
