"""What of one process is on devices with memory of their own, and what stays on the machine. Pure.

Of llama.cpp the last layers go to devices, and what makes logits is the very last; several devices
share them in proportion to their memory. What tokens are looked up in stays. The counts are read
off llama.cpp b11434, as it splits true shapes for devices that answer it like CUDA's
(`python -m bench.memory`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from reconciler.memory.architectures import ARCHITECTURES
from reconciler.memory.cells import Cells, cells_of
from reconciler.memory.compute import batch_of, compute, copied_experts
from reconciler.memory.estimate import read_again_bytes
from reconciler.memory.facts import MemoryEstimate, MemorySettings, ModelFacts
from reconciler.memory.keys import Keys
from reconciler.memory.layers import Shape, shape
from reconciler.memory.overrides import Moved
from reconciler.memory.overrides import moved as moved_tensors

# Numbers a token as wide as the embedding that the machine hands over, beside what goes into the
# graph, and more where positions are looked up too.
_HANDED_OVER, _LOOKED_UP = 3, 2
_UNGATED = 5  # likewise, where layers that stay have a feed-forward without a gate
# How often devices and the machine have what goes into the graph once more where several devices
# work on batches at once; recurrent layers and those that share a cache have more of it.
_AHEAD, _MACHINE_AHEAD, _RECURRENT_AHEAD, _SHARED_AHEAD = 12, 6, 12, 10
# Likewise, where a device has few layers, and all of them read the cache of others.
_SHARED_APART = 8
_UNKNOWN_AHEAD = 5
# Likewise, what a device hands over and back where the cache stays, and where experts do.
_PASSED, _PASSED_RECURRENT, _APART = 2, 8, 6


@dataclass(frozen=True, slots=True)
class OnDevices:
    """Bytes on the machine, those of the weights that it maps, and bytes on each device."""

    machine: int
    mapped: int
    devices: tuple[int, ...]


def is_whole(settings: MemorySettings, facts: ModelFacts) -> bool:
    """Whether all layers are on a device, with what makes logits."""
    return settings.gpu_layers is None or settings.gpu_layers > facts.block_count


def evenly(estimate: MemoryEstimate, devices: int) -> OnDevices:
    """An engine that keeps the model on devices, in equal parts."""
    kept = estimate.weights_bytes + estimate.kv_bytes + estimate.state_bytes
    share = -(-kept // devices) + estimate.compute_bytes
    return OnDevices(_beside(estimate), 0, (share,) * devices)


def by_layers(
    facts: ModelFacts, settings: MemorySettings, estimate: MemoryEstimate, memory: Sequence[int]
) -> OnDevices:
    """llama.cpp's own split."""
    model = shape(facts.architecture, facts.keys)
    cells = cells_of(settings, facts, model)
    blocks = _blocks(facts)
    count = len(blocks) + 1 if is_whole(settings, facts) else settings.gpu_layers or 0
    weights = (*blocks, _head(facts, sum(blocks), on_device=count > 0))
    kept = _padded(estimate.layer_bytes, len(weights))
    moved = kept if settings.kv_offload else (0,) * len(kept)
    first = len(weights) - count
    apart = moved_tensors(facts, settings, weights, first, len(memory))
    layers = [0] * len(memory)
    shares = settings.tensor_split or memory
    for entry, device in zip(range(first, len(weights)), _places(count, shares), strict=True):
        layers[device] += weights[entry] - apart.left[entry] + moved[entry]
    if settings.split_mode in _BY_TENSOR:
        of_weights = sum(weights[first:]) - sum(apart.left[first:])
        layers = _by_tensor(of_weights, sum(moved[first:]), settings, shares)
    buffers = _buffers(facts, model, settings, cells, max(kept), apart)
    mapped = facts.embedding_bytes + facts.lookup_bytes + sum(weights[:first])
    mapped += apart.machine
    beside = _beside(estimate) - (read_again_bytes(facts, settings) if count else 0)
    stays = estimate.kv_bytes + estimate.state_bytes - sum(moved[first:])
    return OnDevices(
        machine=mapped + stays + beside + buffers[0],
        mapped=mapped,
        devices=tuple(map(sum, zip(layers, apart.brought, buffers[1:], strict=True))),
    )


_BY_TENSOR = ("row", "tensor")


def _by_tensor(
    weights: int, kept: int, settings: MemorySettings, shares: Sequence[float]
) -> list[int]:
    """Bytes on each device where each has a part of each tensor. By rows the main one has all that
    is kept, and any may have the small tensors, which nobody splits: bounds, and nothing of it is
    held against llama.cpp."""
    parts = [share / (sum(shares) or 1) for share in shares]
    by_rows = settings.split_mode == "row"
    on_main = settings.main_device if by_rows else None
    return [
        -int(-part * weights // 1)
        + (-int(-part * kept // 1) if on_main is None else kept * (i == on_main))
        for i, part in enumerate(parts)
    ]


def _beside(estimate: MemoryEstimate) -> int:
    return estimate.logits_bytes + estimate.overhead_bytes + estimate.prompt_cache_bytes


def _blocks(facts: ModelFacts) -> tuple[int, ...]:
    """Bytes of each layer, even ones where the file does not say."""
    if facts.block_bytes:
        return _padded(facts.block_bytes, facts.block_count)
    count = facts.block_count
    return (-(-facts.weights_bytes // count),) * count if count else ()


def _head(facts: ModelFacts, blocks: int, on_device: bool) -> int:
    """What follows the layers; on a device the embedding once more, where it makes the logits."""
    rest = facts.weights_bytes - facts.embedding_bytes - facts.lookup_bytes - blocks
    again = 0 if facts.head_bytes or not on_device else facts.embedding_bytes
    return max(rest, 0) + again


def _padded(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    return (*sizes[:count], *(0,) * (count - len(sizes)))


def _places(count: int, shares: Sequence[float]) -> list[int]:
    """The device of each of so many layers."""
    ends = list(accumulate(shares))
    return [min(bisect_right(ends, i * ends[-1] / count), len(shares) - 1) for i in range(count)]


def _buffers(
    facts: ModelFacts,
    model: Shape,
    settings: MemorySettings,
    cells: Cells,
    largest: int,
    apart: Moved,
) -> tuple[int, ...]:
    """Bytes in which the machine computes, and each device. `largest`: what the largest layer
    keeps."""
    devices = len(apart.brought)
    row = ARCHITECTURES.get(facts.architecture)
    shares = row is None or row.shares_kv
    unknown = _UNKNOWN_AHEAD if row is None and model.index_elements else 1
    batch = batch_of(facts, model, settings)
    width = batch * 4 * model.embedding
    masks = batch * (2 if settings.flash_attention else 4) * (cells.full + cells.sliding)
    masks *= 2 if model.index_elements else 1
    inputs = batch * 4 * _inputs(facts, model, settings, batch)
    looked_up = _LOOKED_UP * width if facts.lookup_bytes else 0
    machine = _HANDED_OVER * width + looked_up + inputs + masks
    device, _ = compute(facts, model, settings, cells, on_device=True)
    whole = is_whole(settings, facts)
    layer = 2 * largest if shares else largest
    passed = 0
    if not settings.kv_offload:
        # Copied to the devices layer by layer, and what comes of it handed over and back.
        passed = layer + looked_up + (_PASSED_RECURRENT if model.state_layers else _PASSED) * width
    device += passed
    if settings.tensor_split and row and (row.shares_kv or row.kv_layers is not None):
        device += _SHARED_APART * largest
    leaves = bool(settings.overrides and apart.largest)
    if not (whole and settings.kv_offload) or leaves:
        machine += _stays_with(facts, model, settings, cells, leaves=leaves)
        machine += _UNGATED * width if row and not row.gated else 0
    if not whole:
        # A batch is worth copying what stays to the first device, layer by layer.
        first = device + width + looked_up + max(facts.largest_bytes, apart.largest) + layer
        others = device * unknown if settings.gpu_layers else 0
        # What is brought to another device, or leaves it, has it compute as the first one does.
        others = first if leaves or any(apart.brought) else others
        return machine, first, *(others,) * (devices - 1)
    # llama.cpp works on one batch at a time where parts of layers stay.
    if (
        devices > 1
        and settings.kv_offload
        and not (settings.overrides or settings.cpu_moe_layers != 0)
    ):
        ahead = (3 if settings.flash_attention else 4) * masks
        machine += _MACHINE_AHEAD * inputs + ahead
        device += _AHEAD * inputs + ahead
        device += _RECURRENT_AHEAD * width if model.state_layers else 0
        device += _SHARED_AHEAD * largest if shares else 0
    device *= unknown if devices > 1 else 1
    first = device
    if leaves:
        device += _APART * width
        first = device + 2 * apart.largest + passed
    elif any(facts.expert_bytes[: settings.cpu_moe_layers]):
        # They are copied to the first device for a batch; between recurrent layers two at a time.
        device += _APART * width
        copied = copied_experts(facts, model, settings, cells) + passed
        first = device + 2 * facts.largest_bytes if model.state_layers else max(device, copied)
    return machine, first, *(device,) * (devices - 1)


def _stays_with(
    facts: ModelFacts, model: Shape, settings: MemorySettings, cells: Cells, *, leaves: bool
) -> int:
    """What the machine computes of a batch of the layers that stay with it, beside handing it over:
    all of it where a recurrent layer scans, else what no weights are needed for, where a device has
    no layer, or tensors of layers stay (`leaves`), and others are in between."""
    row = ARCHITECTURES.get(facts.architecture)
    parallel = row is not None and (row.keeps_input or not row.gated)
    scans = Keys(facts.architecture, facts.keys).number("ssm.inner_size")
    attends = model.layers and not settings.flash_attention
    none = settings.gpu_layers == 0 or leaves
    if (model.state_layers and (attends or (scans and not model.gated_attention))) or (
        attends and none and parallel
    ):
        return compute(facts, model, settings, cells)[0]
    return 4 * batch_of(facts, model, settings) * 4 * model.embedding if model.state_layers else 0


def _inputs(facts: ModelFacts, model: Shape, settings: MemorySettings, batch: int) -> int:
    """Numbers a token that go into the graph: its embedding, with that of each layer; where linear
    attention weighs every token against every other, those weights; and without flash attention
    where each of its values goes, in eight bytes."""
    read = Keys(facts.architecture, facts.keys)
    row = ARCHITECTURES.get(facts.architecture)
    each = read.number("embedding_length_per_layer_input") * read.number("block_count")
    weights = model.heads * batch if row and row.square_state else 0
    places = 0 if settings.flash_attention else 2 * model.widest_values
    return model.embedding + each + weights + places
