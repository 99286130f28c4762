"""How much memory llama.cpp needs, from a model's header and its settings. Pure."""

from __future__ import annotations

from collections import Counter

from reconciler.api.quantity import show_bytes
from reconciler.memory.architectures import ARCHITECTURES
from reconciler.memory.cells import Cells, cells_of, pad256
from reconciler.memory.compute import compute, converted_numbers
from reconciler.memory.drafting import guessing, rows_a_slot, states_a_slot
from reconciler.memory.facts import CACHE_TYPES, MemoryEstimate, MemorySettings, ModelFacts
from reconciler.memory.layers import Layer, Shape, shape

# What a llama.cpp server takes besides its buffers once its context is full, as measured of b11434
# on Linux: the program with a chat template, a token and a merge of the tokenizer, a cell of the
# cache, and what a number of the widest product is converted to.
_PROCESS_BYTES = 23 * 2**20
_BYTES_PER_SLOT = 512 * 2**10  # after the first
_BYTES_PER_TOKEN = 183
_BYTES_PER_MERGE = 140
_BYTES_PER_CELL = 220
_BYTES_PER_ANSWERED = 64  # a number of a vector in an answer, as JSON and as text
_HYBRID_BYTES = 26 * 2**20  # additional where layers with and without attention alternate


def estimate_llamacpp(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """Predict the memory of one llama.cpp process that serves one model.

    Cache, state and logits are exact for the architectures in the table. Compute is counted by
    step and the process is fitted; docs/memory.md says how closely. Never raises.
    """
    model = shape(facts.architecture, facts.keys)
    cells = cells_of(settings, facts, model)
    kv, kv_line = _kv(model, settings, cells)
    state, state_line = _state(model, settings, cells)
    logits, logits_line = _logits(facts, model, settings)
    buffer, compute_line = compute(facts, model, settings, cells)
    overhead, overhead_line = _overhead(facts, model, settings, cells)
    guesses, guesses_line = guessing(facts, model, settings, cells)
    cache = settings.prompt_cache_bytes
    lines = [
        f"weights  {show_bytes(facts.weights_bytes)} = {facts.tensor_count} tensors of the file",
        kv_line,
        state_line,
        logits_line,
        compute_line,
        overhead_line,
        guesses_line,
        f"prompt cache  {show_bytes(cache)}, the limit that it may grow to" if cache else "",
        f"an upper bound beside the weights: {model.bound}" if model.bound else "",
    ]
    return MemoryEstimate(
        weights_bytes=facts.weights_bytes,
        kv_bytes=kv,
        state_bytes=state,
        logits_bytes=logits,
        compute_bytes=buffer,
        overhead_bytes=overhead,
        prompt_cache_bytes=cache,
        exact=not model.bound,
        arithmetic=tuple(line for line in lines if line),
        layer_bytes=_each_layer(model, settings, cells),
        draft_bytes=guesses,
    )


def _each_layer(model: Shape, settings: MemorySettings, cells: Cells) -> tuple[int, ...]:
    """What each block keeps: keys and values, those of its index, and its recurrent state."""
    state = _states(settings) * model.state_elements * 4
    sizes = [state if recurs else 0 for recurs in model.recurs]
    index = cells.full * cells.streams * _bytes(model.index_elements, settings.cache_type_k)
    for block, layer in zip(model.blocks, model.layers, strict=True):
        sizes[block] += index + _layer_bytes(layer, model, settings, cells)
    return tuple(sizes)


def _states(settings: MemorySettings) -> int:
    """States of a recurrent layer, of all slots."""
    return max(settings.slots, 1) * states_a_slot(settings)


def _layer_bytes(layer: Layer, model: Shape, settings: MemorySettings, cells: Cells) -> int:
    at = cells.sliding if layer.sliding else cells.full
    return at * cells.streams * _bytes_a_cell(layer, model, settings)


def read_again_bytes(facts: ModelFacts, settings: MemorySettings) -> int:
    """The bytes of the embedding, where a process reads it once more to make logits."""
    row = ARCHITECTURES.get(facts.architecture)
    twice = row is not None and row.reads_embedding_twice and not facts.head_bytes
    return facts.embedding_bytes if twice and not settings.mapped else 0


def _kv(model: Shape, settings: MemorySettings, cells: Cells) -> tuple[int, str]:
    """Keys and values of all layers -> bytes, and the arithmetic."""
    total = 0
    parts = []
    for layer, count in Counter(model.layers).items():
        at = cells.sliding if layer.sliding else cells.full
        total += _layer_bytes(layer, model, settings, cells) * count
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
        parts.append(f"{len(model.layers)} indexes x {cells.full} cells x {index}")
    if not parts:
        return 0, ""
    return total, f"kv  {show_bytes(total)} = {' + '.join(parts)}"


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


def _state(model: Shape, settings: MemorySettings, cells: Cells) -> tuple[int, str]:
    """Recurrent state, and the checkpoints that slots keep of it and of the sliding layers."""
    slots = max(settings.slots, 1)
    layer = model.state_elements * 4 if model.state_layers else 0
    state = _states(settings) * model.state_layers * layer
    parts = []
    if state:
        copies = f" x {states_a_slot(settings)} states" if settings.drafting else ""
        parts.append(
            f"{slots} slots{copies} x {model.state_layers} layers"
            f" x {model.state_elements} elements x 4 B"
        )
    saved = 0
    if settings.checkpoints:
        window = min(cells.sliding, pad256(model.window + settings.u_batch))
        sliding = [_bytes_a_cell(e, model, settings) for e in model.layers if e.sliding]
        copy = window * sum(sliding) + model.state_layers * layer
        saved = slots * settings.checkpoints * copy
    if saved:
        parts.append(f"{slots} slots x {settings.checkpoints} checkpoints x {show_bytes(copy)}")
    line = f"state  {show_bytes(state + saved)} = {' + '.join(parts)}" if parts else ""
    return state + saved, line


def _logits(facts: ModelFacts, model: Shape, settings: MemorySettings) -> tuple[int, str]:
    """What is handed out: a row a slot, and of embeddings a row a token, with its logits."""
    tokens = facts.vocabulary
    if not settings.embeddings:
        rows = settings.slots * rows_a_slot(settings)
        total = rows * tokens * 4
        return total, f"logits  {show_bytes(total)} = {rows} rows x {tokens} tokens x 4 B"
    rows = max(settings.u_batch, settings.slots)
    total = rows * (tokens + model.embedding) * 4
    return total, (
        f"logits  {show_bytes(total)} = {rows} rows"
        f" x ({tokens} tokens + {model.embedding} of the embedding) x 4 B"
    )


def _overhead(
    facts: ModelFacts, model: Shape, settings: MemorySettings, cells: Cells
) -> tuple[int, str]:
    process = 0 if settings.beside else _PROCESS_BYTES
    process += _BYTES_PER_SLOT * max(settings.slots - 1, 0)
    process += _HYBRID_BYTES if model.layers and model.state_layers else 0
    tokens, merges, in_use = facts.vocabulary, facts.merges, cells.in_use
    tokenizer = _BYTES_PER_TOKEN * tokens + _BYTES_PER_MERGE * merges
    converted, size = converted_numbers(facts, model, settings, cells)
    # A decoder answers with a vector for each token, unless it pools them.
    answered = settings.u_batch * model.embedding if settings.embeddings and model.cached else 0
    # Read and not mapped, they are there only once, repacked.
    repacked = facts.repackable_bytes if settings.repack and settings.mapped else 0
    again = read_again_bytes(facts, settings)
    total = again + process + tokenizer + _BYTES_PER_CELL * in_use + converted * size
    total += answered * _BYTES_PER_ANSWERED + repacked
    line = (
        f"overhead  {show_bytes(total)} = {show_bytes(process)} of the process"
        f" + {tokens} tokens x {_BYTES_PER_TOKEN} B"
        + (f" + {merges} merges x {_BYTES_PER_MERGE} B" if merges else "")
        + f" + {in_use} cells x {_BYTES_PER_CELL} B + {converted} numbers converted x {size} B"
        + (f" + {answered} numbers answered x {_BYTES_PER_ANSWERED} B" if answered else "")
        + (f" + {show_bytes(again)} of the embedding, read again" if again else "")
        + (f" + {show_bytes(repacked)} of weights repacked for the CPU" if repacked else "")
    )
    return total, line
