"""Which settings each shape is asked with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.memory.shapes import Model
from reconciler.memory import MemorySettings

# context and what differs from the plain settings
_GENERATION: tuple[tuple[int, dict[str, Any]], ...] = (
    (512, {"u_batch": 128}),
    (2048, {}),
    (8192, {}),
    (8192, {"slots": 4}),
    (8192, {"slots": 8, "kv_unified": False}),
    (8192, {"u_batch": 2048}),
    (32768, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    (32768, {"slots": 4, "cache_type_k": "q4_0", "cache_type_v": "q4_0", "u_batch": 1024}),
    (131072, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    (2048, {"flash_attention": False}),
    (8192, {"flash_attention": False, "slots": 4}),
    (8192, {"swa_full": True}),
)
_EMBEDDINGS: tuple[tuple[int, dict[str, Any]], ...] = (
    (512, {}),
    (8192, {}),
    (8192, {"u_batch": 2048, "slots": 4}),
    (2048, {"flash_attention": False}),
)
PLAIN: dict[str, Any] = {
    "slots": 1,
    "u_batch": 512,
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "flash_attention": True,
    "kv_unified": True,
    "prompt_cache_bytes": 0,
    "repack": False,
}


def settings(model: Model) -> Iterator[tuple[str, MemorySettings]]:
    """The group of the table that a combination belongs to, and its settings."""
    if model.pooling:
        kind = "encoders" if model.keys.get("attention.causal") is False else "embeddings"
    else:
        kind = "experts" if "expert_count" in model.keys else "generation"
        for context, changes in _GENERATION:
            yield kind, MemorySettings(context=context, **(PLAIN | changes))
        kind = "embeddings"
    for context, changes in _EMBEDDINGS:
        yield kind, MemorySettings(context=context, embeddings=True, **(PLAIN | changes))
