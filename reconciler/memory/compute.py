"""The buffer in which llama.cpp computes one micro-batch, at the step that takes most. Pure.

A step keeps so many numbers of four bytes for each token. The counts are read off the buffers that
llama.cpp b11434 reserves for 76 true shapes (`python -m bench.memory`); where its allocator
leaves holes that depend on the shape, they are the most that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reconciler.api.quantity import show_bytes
from reconciler.memory.architectures import ARCHITECTURES, Architecture
from reconciler.memory.cells import Cells, pad256
from reconciler.memory.facts import MemorySettings, ModelFacts
from reconciler.memory.keys import Keys
from reconciler.memory.layers import Shape

_ATTENTION = "attention"
_POSITIONS = 16  # numbers a token of positions and places in the cache


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the graph: numbers a token; bytes for a token and a cell of the masks, and of the
    scores, which only the larger cache has; recurrent states that it holds besides."""

    name: str
    numbers: int
    mask_bytes: int
    score_bytes: int = 0
    states: int = 0
    copied: int = 0  # bytes that it copies

    def bytes(self, batch: int, cells: Cells, state_bytes: int) -> int:
        masks, scores = cells.full + cells.sliding, max(cells.full, cells.sliding)
        a_token = 4 * self.numbers + self.mask_bytes * masks + self.score_bytes * scores
        return batch * a_token + self.states * state_bytes + self.copied


def compute(
    facts: ModelFacts,
    model: Shape,
    settings: MemorySettings,
    cells: Cells,
    on_device: bool = False,
) -> tuple[int, str]:
    """Bytes of the buffer, and the arithmetic."""
    batch = batch_of(facts, model, settings)
    state = 4 * model.state_elements * max(settings.slots, 1)
    steps = _steps(facts, model, settings)
    if on_device:
        row = ARCHITECTURES.get(facts.architecture)
        at_once = row is None or row.keeps_input or bool(model.state_layers)
        steps = tuple(
            _copying(step, model, settings, cells) if at_once or step.name == _ATTENTION else step
            for step in steps
        )
    step = max(steps, key=lambda step: step.bytes(batch, cells, state))
    total = step.bytes(batch, cells, state)
    masks, scores = cells.full + cells.sliding, max(cells.full, cells.sliding)
    parts = [f"{step.numbers} numbers in {step.name} x 4 B"]
    if masks:
        parts.append(f"{masks} cells of mask x {step.mask_bytes} B")
    if scores and step.score_bytes:
        parts.append(f"{scores} cells of scores x {step.score_bytes} B")
    line = f"compute  {show_bytes(total)} = {batch} tokens x ({' + '.join(parts)})"
    if step.states and state:
        line += f" + {step.states} x {show_bytes(state)} of state"
    return total, line


def converted_numbers(
    facts: ModelFacts, model: Shape, settings: MemorySettings, cells: Cells
) -> tuple[int, int]:
    """Numbers that a CPU converts for its widest product, and bytes of each: one side of a product
    takes the other's type, in room of the process that no buffer counts."""
    read = Keys(facts.architecture, facts.keys)
    width = max(
        read.number("feed_forward_length"),
        read.number("expert_feed_forward_length") * read.number("expert_used_count"),
        read.number("ssm.inner_size"),
        model.embedding,
    )
    if not settings.flash_attention:  # the scores of every head, with the values
        width = max(width, model.heads * max(cells.full, cells.sliding))
    return batch_of(facts, model, settings) * width, 2


def _copying(step: Step, model: Shape, settings: MemorySettings, cells: Cells) -> Step:
    """A device's flash attention reads a cache of another type than f16 through a copy."""
    if not settings.flash_attention:
        return step
    keys = 0 if settings.cache_type_k == "f16" else model.widest_keys
    values = 0 if settings.cache_type_v == "f16" else model.widest_values
    return replace(step, copied=2 * cells.full * cells.streams * (keys + values))


def copied_experts(facts: ModelFacts, model: Shape, settings: MemorySettings, cells: Cells) -> int:
    """Bytes at the step at which a device has a copy of experts that stay on the machine: one
    tensor at a time, beside what goes into its product and what comes out. Beside an index what
    comes out takes no room that experts leave."""
    read = Keys(facts.architecture, facts.keys)
    used, width = _used_experts(read)
    numbers = used * width + used * max(width, model.embedding) + 10 * read.number("expert_count")
    mask = 2 if settings.flash_attention else 4
    if model.index_elements:
        numbers, mask = numbers + 3 * used * model.embedding, mask + 2
    numbers += _stream(read, model) + _POSITIONS
    step = Step("copied experts", numbers, mask, copied=facts.largest_bytes)
    return step.bytes(batch_of(facts, model, settings), cells, 0)


def batch_of(facts: ModelFacts, model: Shape, settings: MemorySettings) -> int:
    """Tokens at a time: no more than the cache has cells for."""
    context = settings.context or facts.trained_context or settings.u_batch
    return min(settings.u_batch, pad256(context)) if model.cached else settings.u_batch


def _steps(facts: ModelFacts, model: Shape, settings: MemorySettings) -> tuple[Step, ...]:
    """Every step that could be the one that takes most."""
    row = ARCHITECTURES.get(facts.architecture)
    read = Keys(facts.architecture, facts.keys)
    mask = 2 if settings.flash_attention else 4
    wide = _stream(read, model) + _POSITIONS
    steps = [
        Step("the feed-forward", wide + _feed_forward(read, model, row), mask),
        Step("its experts", wide + _experts(read, model), mask),
        _attention(read, model, wide, settings.flash_attention),
    ]
    if model.state_layers:
        steps.append(Step("recurrent layers", wide + _recurrent(read, model), mask, states=2))
    if row and row.square_state:  # its linear attention weighs every token against every other
        heads, batch = model.heads, batch_of(facts, model, settings)
        numbers = 5 * heads * model.widest_head + 3 * heads * batch
        steps.append(Step("linear attention", wide + numbers, mask))
    if settings.drafting:  # each slot puts out a row for each token that was guessed
        rows = max(settings.slots, 1) * (1 + settings.drafting.tokens)
        steps.append(Step("the output", wide, mask, copied=4 * rows * facts.vocabulary))
    logits = model.cached and (row is None or row.embeddings_with_logits)
    if settings.embeddings and logits:  # every token is put out
        kept = 0 if settings.flash_attention else model.widest_keys + model.widest_values
        numbers = wide + model.embedding + kept + facts.vocabulary
        steps.append(Step("the output", numbers, mask))
    return tuple(steps)


def _stream(read: Keys, model: Shape) -> int:
    """What is carried through all layers, a norm of it and the inputs."""
    width = model.embedding
    streams = read.number("hyper_connection.count") * 4
    inputs = read.number("embedding_length_per_layer_input") * read.number("block_count")
    return (5 + streams) * width + (2 * inputs + 4 * width if inputs else 0)


def _feed_forward(read: Keys, model: Shape, row: Architecture | None) -> int:
    """Dense, or of the experts that every token takes beside its own."""
    shared = max(
        read.number("expert_shared_feed_forward_length"),
        read.number("expert_shared_count") * read.number("expert_feed_forward_length"),
    )
    width = read.number("feed_forward_length")
    gated, kept = row is None or row.gated, row is None or row.keeps_input
    dense = (3 if gated else 1) * width + (model.embedding if kept or not gated else 0)
    return max(dense, model.embedding + 3 * shared)


def _experts(read: Keys, model: Shape) -> int:
    """What goes into the experts that a token takes, or what comes out."""
    used, width = _used_experts(read)
    into, out = 3 * used * width, used * width + 2 * (used - 1) * model.embedding
    return max(into, out) + 10 * read.number("expert_count") if used else 0


def _used_experts(read: Keys) -> tuple[int, int]:
    """How many a token takes, and their width."""
    width = read.number("expert_feed_forward_length") or read.number("feed_forward_length")
    return read.number("expert_used_count"), width


def _attention(read: Keys, model: Shape, wide: int, flash: bool) -> Step:
    """Queries and what comes of them; without flash attention also the scores of every head."""
    heads, head = model.heads, model.widest_head
    mask, scores = (2, 0) if flash else (4, 4 * heads)
    compressed = read.number("attention.key_length_mla")
    if read.number("attention.indexer.key_length"):  # with masks and scores of its own
        numbers = wide + 7 * heads * head + 4 * read.number("attention.indexer.top_k")
        own = 4 if compressed else 8 * max(read.number("attention.indexer.head_count"), 1)
        return Step(_ATTENTION, numbers, mask + 6, scores + own)
    if compressed:
        return Step(_ATTENTION, wide + heads * (compressed + 2 * head), mask, scores)
    queries = (4 if model.gated_attention else 2) * heads * head
    if flash:
        return Step(_ATTENTION, wide + model.embedding + queries, mask)
    keys_and_values = 2 * (model.widest_keys + model.widest_values)
    return Step(_ATTENTION, wide + 2 * model.embedding + queries + keys_and_values, mask, scores)


def _recurrent(read: Keys, model: Shape) -> int:
    """The projections of a recurrent layer, before and after its convolution."""
    if read.number("wkv.head_size"):
        return 15 * model.embedding
    inner = max(read.number("ssm.inner_size"), read.number("kda.head_dim") * model.heads)
    if model.gated_attention:  # between layers of a gated delta net
        return 5 * inner
    groups = read.number("ssm.group_count") * read.number("ssm.state_size")
    return 5 * inner + 6 * groups + read.number("ssm.time_step_rank")
