"""The projector of a model, which turns images and sounds into its input. Pure."""

from __future__ import annotations

from dataclasses import replace

from reconciler.api.quantity import show_bytes
from reconciler.memory.facts import MemoryEstimate, ModelFacts

_ARCHITECTURE = "clip"  # general.architecture of every projector that llama.cpp loads
_UNKNOWN = "the projector's buffers for an image"


def is_projector(facts: ModelFacts) -> bool:
    return facts.architecture == _ARCHITECTURE


def beside_projector(estimate: MemoryEstimate, facts: ModelFacts) -> MemoryEstimate:
    """The estimate of a model together with its projector."""
    size = facts.weights_bytes
    line = f"projector  {show_bytes(size)} = {facts.tensor_count} tensors of the file"
    return replace(
        estimate,
        projector_bytes=size,
        arithmetic=(*estimate.arithmetic, line),
        unknown=(*estimate.unknown, _UNKNOWN),
    )
