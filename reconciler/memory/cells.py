"""How many cells the cache of one llama.cpp process has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.memory.facts import MemorySettings, ModelFacts
from reconciler.memory.layers import Shape


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one stream of the cache, in a layer with full attention and in a sliding one."""

    full: int
    sliding: int
    streams: int

    @property
    def in_use(self) -> int:
        """Cells of all streams in both caches."""
        return (self.full + self.sliding) * self.streams


def cells_of(settings: MemorySettings, facts: ModelFacts, model: Shape) -> Cells:
    context = settings.context or facts.trained_context or 0
    slots = max(settings.slots, 1)
    streams = 1 if settings.kv_unified else slots
    full = pad256(pad256(context) // streams)
    sliding = 0
    if not model.cached:  # a batch attends to itself
        slides = facts.keys.get(f"{facts.architecture}.attention.sliding_window")
        return Cells(settings.u_batch, settings.u_batch if slides else 0, 1)
    if not model.layers:
        return Cells(0, 0, streams)
    if any(layer.sliding for layer in model.layers):
        seen = model.window * (slots if settings.kv_unified else 1) + settings.u_batch
        sliding = full if settings.swa_full else pad256(min(full, seen))
    return Cells(full, sliding, streams)


def pad256(count: int) -> int:
    return -(-count // 256) * 256
