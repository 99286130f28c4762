"""Tensors that lie elsewhere than their layers: experts that stay on the machine, and what
`tensorOverrides` name. Pure.

llama.cpp asks its patterns in turn, those for experts first, and the first that is found in a
tensor's name decides (b11434).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reconciler.memory.facts import MemorySettings, ModelFacts
from reconciler.memory.patterns import pattern_of

MACHINE = "CPU"
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch|)exps")
_EMBEDDING = "token_embd.weight"
_NUMBER = re.compile(r"[0-9]+$")


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes by where they go. `left` has those of each layer, and of what follows the layers, that
    are not where these are; `machine` is what the machine maps for it, less what devices took of
    it; `brought` is what each device has of it, and `largest` the largest tensor that the machine
    keeps of what else were on a device."""

    left: tuple[int, ...]
    machine: int
    brought: tuple[int, ...]
    largest: int


def device_of(buffer: str) -> int | None:
    """The number of a device by the name of its buffers, `CUDA1`; None: the machine's."""
    if buffer == MACHINE:
        return None
    number = _NUMBER.search(buffer)
    return int(number[0]) if number else 0


def unmatched(facts: ModelFacts, patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns that are found in the name of no tensor."""
    names = [name for name, _, _ in _tensors(facts)]
    return tuple(p for p in patterns if not any(map(pattern_of(p).is_in, names)))


def moved(
    facts: ModelFacts, settings: MemorySettings, weights: Sequence[int], first: int, devices: int
) -> Moved:
    """`weights` are the bytes of each layer and of what follows the layers, of which devices have
    those from `first` on."""
    if not settings.overrides:
        left = _padded(facts.expert_bytes[: settings.cpu_moe_layers], len(weights))
        return Moved(left, sum(left[first:]), (0,) * devices, facts.largest_bytes if left else 0)
    if not facts.layer_tensors:
        return _unknown(settings, weights, first, devices)
    return _by_name(facts, settings, len(weights), first, devices)


def _by_name(
    facts: ModelFacts, settings: MemorySettings, entries: int, first: int, devices: int
) -> Moved:
    left, brought, machine, largest = [0] * entries, [0] * devices, 0, 0
    patterns = [(pattern_of(text), device_of(buffer)) for text, buffer in settings.overrides]
    for name, entry, size in _tensors(facts):
        stays = _stays(name, entry, settings)
        place = next((d for p, d in patterns if p.is_in(name)), -1) if not stays else None
        if place == -1:
            continue
        # What tokens are looked up in is on the machine, and once more where it makes the logits.
        is_again = name == _EMBEDDING and not facts.head_bytes
        at = entries - 1 if entry is None else min(entry, entries - 1)
        is_looked_up = entry is None and name in _LOOKED_UP
        on_device = at >= first and (is_again or not is_looked_up)
        left[at] += size if is_again or not is_looked_up else 0
        if place is not None:
            # What tokens are looked up in may be copied there (Gemma 3n).
            copied = size if name == _EMBEDDING else 0
            brought[min(place, devices - 1)] += size + copied  # alone, it may have any number
            machine -= size if is_looked_up or not on_device else 0
        elif on_device and not is_again:
            machine += size
        if on_device and place is None:
            largest = max(largest, size)
    return Moved(tuple(left), machine, tuple(brought), largest)


_LOOKED_UP = frozenset(
    {_EMBEDDING, "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight"}
)


def _stays(name: str, layer: int | None, settings: MemorySettings) -> bool:
    """Whether it is an expert that --cpu-moe or --n-cpu-moe names first."""
    most = settings.cpu_moe_layers
    return layer is not None and (most is None or layer < most) and bool(_EXPERTS.search(name))


def _unknown(settings: MemorySettings, weights: Sequence[int], first: int, devices: int) -> Moved:
    """A bound where no names are known: nothing leaves a device, and all may come to each."""
    named = {device_of(buffer) for _, buffer in settings.overrides}
    whole = sum(weights)
    apart = {min(device, devices - 1) for device in named if device is not None}
    brought = tuple(whole if device in apart else 0 for device in range(devices))
    stays = sum(weights[first:]) if None in named or settings.cpu_moe_layers != 0 else 0
    return Moved((0,) * len(weights), stays, brought, max(weights, default=0))


def _tensors(facts: ModelFacts) -> Iterator[tuple[str, int | None, int]]:
    """(name, layer, bytes) of every tensor."""
    for name, size in facts.other_tensors:
        yield name, None, size
    for name, runs in facts.layer_tensors:
        for first, count, size in runs:
            for layer in range(first, first + count):
                yield f"blk.{layer}.{name}", layer, size


def _padded(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    return (*sizes[:count], *(0,) * (count - len(sizes)))
