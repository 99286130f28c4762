"""How much memory a served model needs, from its header and its settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Number = int | float | bool
FactValue = Number | str | tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a GGUF header says, as far as memory depends on it.

    `keys` are the header's scalar and small numeric-array values by full name
    (`gemma3.block_count`, `general.file_type`); `vocabulary` is the length of the token list;
    `weights_bytes` the sum of all tensors; `repackable_bytes` the part of it in types that the CPU
    backend repacks into a second, anonymous copy.
    """

    architecture: str
    file_bytes: int
    weights_bytes: int
    repackable_bytes: int
    tensor_count: int
    vocabulary: int
    keys: Mapping[str, FactValue]


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The settings that memory depends on. Sizes in tokens, `prompt_cache_bytes` in bytes."""

    context: int
    slots: int
    u_batch: int
    cache_type_k: str
    cache_type_v: str
    flash_attention: bool  # `auto` counts as on
    kv_unified: bool
    prompt_cache_bytes: int
    embeddings: bool = False
    repack: bool = True
    swa_full: bool = False
    gpu_layers: int | None = None  # None: all where there is a device
    devices: int = 1


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by what they are for. `exact` is False where a part is only an upper bound, or where
    the architecture is not in the table; `arithmetic` holds one line a part, for `explain`."""

    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    logits_bytes: int
    compute_bytes: int
    overhead_bytes: int
    prompt_cache_bytes: int
    exact: bool
    arithmetic: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.beside_weights_bytes

    @property
    def beside_weights_bytes(self) -> int:
        """Everything that a second process of the same file needs again."""
        return (
            self.kv_bytes
            + self.state_bytes
            + self.logits_bytes
            + self.compute_bytes
            + self.overhead_bytes
            + self.prompt_cache_bytes
        )


def estimate(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """Predict the memory of one llama.cpp process that serves one model."""
    raise NotImplementedError  # replaced by the memory helper
