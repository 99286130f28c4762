"""Estimates of one pass, each made once: many services share a model and its settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.memory import MemoryEstimate, MemorySettings, ModelFacts, estimate


@dataclass(slots=True)
class Estimates:
    """What was estimated so far. Facts are the same when they are the same object, which a hash of
    a whole header would only say more slowly; they are kept, so that no other gets their id."""

    _made: dict[tuple[int, MemorySettings], tuple[ModelFacts, MemoryEstimate]] = field(
        default_factory=dict
    )

    def of(self, facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
        key = (id(facts), settings)
        if key not in self._made:
            self._made[key] = (facts, estimate(facts, settings))
        return self._made[key][1]
