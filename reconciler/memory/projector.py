"""The projector of a model, which turns images and sounds into its input. Pure."""

from __future__ import annotations

from dataclasses import replace

from reconciler.api.quantity import show_bytes
from reconciler.memory.facts import MemoryEstimate, ModelFacts
from reconciler.memory.keys import Keys

_ARCHITECTURE = "clip"  # general.architecture of every projector that llama.cpp loads
_UNKNOWN = "the projector's buffers for an image"
_COLOURS = 3


def is_projector(facts: ModelFacts) -> bool:
    return facts.architecture == _ARCHITECTURE


def beside_projector(estimate: MemoryEstimate, facts: ModelFacts) -> MemoryEstimate:
    """The estimate of a model together with its projector."""
    size = facts.weights_bytes
    line = f"projector  {show_bytes(size)} = {facts.tensor_count} tensors of the file"
    buffers, side, arithmetic = _buffers(facts)
    unknown = f"{_UNKNOWN} larger than {side} x {side}" if buffers else _UNKNOWN
    if buffers:
        line += f" + {show_bytes(buffers)} for an image = {arithmetic}"
    return replace(
        estimate,
        projector_bytes=size + buffers,
        arithmetic=(*estimate.arithmetic, line),
        unknown=(*estimate.unknown, unknown),
    )


def _buffers(facts: ModelFacts) -> tuple[int, int, str]:
    """Bytes in which it computes an image as large as its header says, that size, and the
    arithmetic; 0 where the header does not say. llama.cpp takes them when it starts, and some
    kinds of projectors take more then. A bound for what is read off b11434 for five shapes."""
    read = Keys(_ARCHITECTURE, facts.keys)
    side, patch = read.number("vision.image_size"), read.number("vision.patch_size")
    width, inner = (
        read.number("vision.embedding_length"),
        read.number("vision.feed_forward_length"),
    )
    if not (side and patch and width and inner):
        return 0, 0, ""
    patches, numbers = (side // patch) ** 2, 2 * inner + 3 * width
    total = 4 * (patches * numbers + _COLOURS * side**2)
    return total, side, f"({patches} patches x {numbers} + {_COLOURS} x {side} x {side}) x 4 B"
