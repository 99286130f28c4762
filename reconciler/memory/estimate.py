"""How much memory llama.cpp needs, from a model's header and its settings. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from reconciler.api.quantity import show_bytes
from reconciler.memory.layers import FactValue, Layer, Shape, shape

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
# What a llama.cpp server takes besides its buffers after a full prompt: a fit to measurements of
# b11434 on Linux (18 MiB, and bytes for each token of the vocabulary and each cell of the cache).
_PROCESS_BYTES = 18 * 2**20
_BYTES_PER_TOKEN = 183
_BYTES_PER_CELL = 220
_HYBRID_BYTES = 26 * 2**20  # additional where layers with and without attention alternate


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts of a GGUF header that memory depends on; for a model in another format those of its
    config.json (reconciler.memory.config), under the keys of a header.

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
    swa_full: bool = False
    gpu_layers: int | None = None  # None: all, if there is a device
    devices: int = 1
    checkpoints: int = 0  # a slot's saved copies of sliding and recurrent state (--ctx-checkpoints)
    engine: Literal["llama.cpp", "mlx", "vllm"] = "llama.cpp"
    kv_bytes: int | None = None  # on each device, if stated explicitly
    device_fraction: float | None = None  # of each device, allocated at the start


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by purpose.

    `exact` is False if a part is only an upper bound, or if the architecture is not in the table;
    `arithmetic` has one line per part, for `explain`. `unknown` names what is in no sum because it
    cannot be predicted. `largest_layer_bytes` is what the largest layer keeps (part of kv and
    state). `projector_bytes` are weights as well, which each process reads into memory of its own
    (llama.cpp b11434).
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
    largest_layer_bytes: int = 0
    unknown: tuple[str, ...] = ()
    projector_bytes: int = 0

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
        )


def estimate_llamacpp(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """Predict the memory of one llama.cpp process that serves one model.

    Cache and state are exact for the architectures in the table; compute and overhead are fitted
    (within 4 % of a full server for Gemma 3 270M and llama and DeepSeek shapes, and not
    below the buffers of Mamba and Qwen 3.5 shapes). Never raises.
    """
    model = shape(facts.architecture, facts.keys)
    cells = _cells(settings, facts, model)
    kv, largest_kv, kv_line = _kv(model, settings, cells)
    state, largest_state, state_line = _state(model, settings, cells)
    rows = max(settings.u_batch, settings.slots) if settings.embeddings else settings.slots
    logits = rows * facts.vocabulary * 4
    compute, compute_line = _compute(model, settings, cells)
    overhead, overhead_line = _overhead(facts, model, settings, cells)
    cache = settings.prompt_cache_bytes
    lines = [
        f"weights  {show_bytes(facts.weights_bytes)} = {facts.tensor_count} tensors of the file",
        kv_line,
        state_line,
        f"logits  {show_bytes(logits)} = {rows} rows x {facts.vocabulary} tokens x 4 B",
        compute_line,
        overhead_line,
        f"prompt cache  {show_bytes(cache)}, the limit that it may grow to" if cache else "",
        f"an upper bound beside the weights: {model.bound}" if model.bound else "",
    ]
    return MemoryEstimate(
        weights_bytes=facts.weights_bytes,
        kv_bytes=kv,
        state_bytes=state,
        logits_bytes=logits,
        compute_bytes=compute,
        overhead_bytes=overhead,
        prompt_cache_bytes=cache,
        exact=not model.bound,
        arithmetic=tuple(line for line in lines if line),
        largest_layer_bytes=largest_kv + largest_state,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of one stream of the cache, in a layer with full attention and in a sliding one."""

    full: int
    sliding: int
    streams: int

    @property
    def in_use(self) -> int:
        """Cells of all streams in both caches."""
        return (self.full + self.sliding) * self.streams


def _cells(settings: MemorySettings, facts: ModelFacts, model: Shape) -> _Cells:
    context = settings.context or facts.trained_context or 0
    slots = max(settings.slots, 1)
    streams = 1 if settings.kv_unified else slots
    full = _pad256(_pad256(context) // streams)
    sliding = 0
    if not model.cached:  # a batch attends to itself
        return _Cells(settings.u_batch, settings.u_batch if model.window else 0, 1)
    if not model.layers:
        return _Cells(0, 0, streams)
    if any(layer.sliding for layer in model.layers):
        seen = model.window * (slots if settings.kv_unified else 1) + settings.u_batch
        sliding = full if settings.swa_full else _pad256(min(full, seen))
    return _Cells(full, sliding, streams)


def _pad256(count: int) -> int:
    return -(-count // 256) * 256


def _kv(model: Shape, settings: MemorySettings, cells: _Cells) -> tuple[int, int, str]:
    """Keys and values of all layers -> bytes, those of the largest layer, and the arithmetic."""
    total = largest = 0
    parts = []
    for layer, count in Counter(model.layers).items():
        at = cells.sliding if layer.sliding else cells.full
        size = at * cells.streams * _bytes_a_cell(layer, model, settings)
        total += size * count
        largest = max(largest, size)
        parts.append(
            f"{count} {'sliding ' if layer.sliding else ''}layers x {at} cells"
            + (f" x {cells.streams} streams" if cells.streams > 1 else "")
            + f" x {layer.kv_heads} {'head' if layer.kv_heads == 1 else 'heads'}"
            + f" x ({layer.key} {settings.cache_type_k}"
            + (f" + {layer.value} {settings.cache_type_v})" if layer.value else ")")
        )
    if index := model.index_elements:
        size = cells.full * cells.streams * _bytes(index, settings.cache_type_k)
        total += size * len(model.layers)
        largest += size
        parts.append(f"{len(model.layers)} indexes x {cells.full} cells x {index}")
    if not parts:
        return 0, 0, ""
    return total, largest, f"kv  {show_bytes(total)} = {' + '.join(parts)}"


def _bytes_a_cell(layer: Layer, model: Shape, settings: MemorySettings) -> int:
    """Without flash attention V is stored transposed, every layer as wide as the widest."""
    wide = layer.kv_heads * layer.value if settings.flash_attention else model.widest_values
    values = wide if layer.value else 0
    return _bytes(layer.kv_heads * layer.key, settings.cache_type_k) + _bytes(
        values, settings.cache_type_v
    )


def _bytes(elements: int, cache_type: str) -> int:
    block, size = CACHE_TYPES.get(cache_type, (1, 4))
    return -(-elements * size // block)


def _state(model: Shape, settings: MemorySettings, cells: _Cells) -> tuple[int, int, str]:
    """Recurrent state, and the checkpoints that slots keep of it and of the sliding layers."""
    slots = max(settings.slots, 1)
    layer = model.state_elements * 4 if model.state_layers else 0
    state = slots * model.state_layers * layer
    parts = []
    if state:
        parts.append(
            f"{slots} slots x {model.state_layers} layers x {model.state_elements} elements x 4 B"
        )
    saved = 0
    if settings.checkpoints:
        window = min(cells.sliding, _pad256(model.window + settings.u_batch))
        sliding = [_bytes_a_cell(e, model, settings) for e in model.layers if e.sliding]
        copy = window * sum(sliding) + model.state_layers * layer
        saved = slots * settings.checkpoints * copy
    if saved:
        parts.append(f"{slots} slots x {settings.checkpoints} checkpoints x {show_bytes(copy)}")
    line = f"state  {show_bytes(state + saved)} = {' + '.join(parts)}" if parts else ""
    return state + saved, slots * layer, line


def _compute(model: Shape, settings: MemorySettings, cells: _Cells) -> tuple[int, str]:
    """The buffer of one micro-batch: masks, activations, and scores without flash attention."""
    batch = settings.u_batch
    attention = 3 * model.feed_forward + 2 * model.heads * model.widest_head
    widths = 4 * model.embedding + max(attention, 6 * model.state_width)
    activations = 4 * batch * widths
    moving = 8 * settings.slots * model.state_elements if model.state_layers else 0
    mask = (cells.full + cells.sliding) * batch * (2 if settings.flash_attention else 4)
    scores = 0 if settings.flash_attention else model.heads * cells.full * batch * 4
    total = activations + moving + mask + scores
    line = (
        f"compute  {show_bytes(total)} = {batch} tokens x ({widths} activations x 4 B"
        f" + {cells.full + cells.sliding} cells of mask x {2 if settings.flash_attention else 4} B"
        + (f" + {model.heads} heads x {cells.full} cells x 4 B)" if scores else ")")
        + (f" + {show_bytes(moving)} of state" if moving else "")
    )
    return total, line


def _overhead(
    facts: ModelFacts, model: Shape, settings: MemorySettings, cells: _Cells
) -> tuple[int, str]:
    process = _PROCESS_BYTES + (_HYBRID_BYTES if model.layers and model.state_layers else 0)
    repacked = facts.repackable_bytes if settings.repack else 0
    tokens, in_use = facts.vocabulary, cells.in_use
    total = process + _BYTES_PER_TOKEN * tokens + _BYTES_PER_CELL * in_use + repacked
    line = (
        f"overhead  {show_bytes(total)} = {show_bytes(process)} of the process"
        f" + {tokens} tokens x {_BYTES_PER_TOKEN} B + {in_use} cells x {_BYTES_PER_CELL} B"
        + (f" + {show_bytes(repacked)} of weights repacked for the CPU" if repacked else "")
    )
    return total, line
