"""How much memory a served model needs, from its header or config and its settings. Pure."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from reconciler.memory.estimate import estimate_llamacpp
from reconciler.memory.facts import CACHE_TYPES, MemoryEstimate, MemorySettings, ModelFacts
from reconciler.memory.folders import MLX, VLLM, estimate_mlx, estimate_vllm
from reconciler.memory.projector import beside_projector, is_projector

__all__ = [
    "CACHE_TYPES",
    "MLX",
    "VLLM",
    "MemoryEstimate",
    "MemorySettings",
    "ModelFacts",
    "beside_projector",
    "estimate",
    "is_projector",
]

_BY_ENGINE: Mapping[str, Callable[[ModelFacts, MemorySettings], MemoryEstimate]] = MappingProxyType(
    {"llama.cpp": estimate_llamacpp, "mlx": estimate_mlx, "vllm": estimate_vllm}
)


def estimate(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """Predict the memory of one process that serves one model. Never raises."""
    return _BY_ENGINE[settings.engine](facts, settings)
