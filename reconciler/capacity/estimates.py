"""The estimates of one pass, each computed once: many services share a model and its settings.
Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.memory import (
    MemoryEstimate,
    MemorySettings,
    ModelFacts,
    OnDevices,
    estimate,
    on_devices,
)


@dataclass(slots=True)
class Estimates:
    """A cache of estimates. Facts are compared by identity, since hashing a whole header would be
    slow; they are kept alive so that their id is not reused."""

    _made: dict[tuple[int, MemorySettings], tuple[ModelFacts, MemoryEstimate]] = field(
        default_factory=dict
    )

    _split: dict[tuple[int, MemorySettings, tuple[int, ...]], OnDevices] = field(
        default_factory=dict
    )

    def of(self, facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
        key = (id(facts), settings)
        if key not in self._made:
            self._made[key] = (facts, estimate(facts, settings))
        return self._made[key][1]

    def on_devices(
        self, facts: ModelFacts, settings: MemorySettings, memory: tuple[int, ...]
    ) -> OnDevices:
        made = self.of(facts, settings)
        key = (id(facts), settings, memory)
        if key not in self._split:
            self._split[key] = on_devices(facts, settings, made, memory)
        return self._split[key]
