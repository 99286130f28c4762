"""How much memory a served model needs, from its header and its settings. Pure."""

from reconciler.memory.estimate import (
    CACHE_TYPES,
    MemoryEstimate,
    MemorySettings,
    ModelFacts,
    estimate,
)

__all__ = ["CACHE_TYPES", "MemoryEstimate", "MemorySettings", "ModelFacts", "estimate"]
