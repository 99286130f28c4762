"""What becomes of LLMKube's fields of a Model. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.foreign.field import (
    AMOUNT,
    BOOLEAN,
    LIST,
    TEXT,
    ForeignField,
    alias,
    answered,
    converted,
    one_of,
)

_ACCELERATORS: Mapping[str, str] = {"nvidia": "cuda", "amd": "rocm", "intel": "intel"}
_ACCELERATOR = "spec.hardware.accelerator"
_COUNT = "spec.hardware.gpu.count"
_FETCHING = "nothing is asked for what fetches a model: it needs tens of megabytes"


FIELDS: tuple[ForeignField, ...] = (
    answered("spec.quantization", TEXT, "it is read from the header of the file"),
    answered("spec.resources.cpu", AMOUNT, _FETCHING),
    answered("spec.resources.memory", AMOUNT, _FETCHING),
    answered(
        "spec.refreshPolicy",
        one_of("IfNotPresent", "OnChange"),
        "a source is followed by git: pin hf://ORG/REPO@REVISION, and change it to refresh",
        "IfNotPresent",
    ),
    answered("spec.prefetch", BOOLEAN, "a node fetches what it will serve as soon as it is placed"),
    answered("spec.prefetchTolerations", LIST, "no pod is made that only fetches", []),
    converted(
        "spec.hardware.gpu.enabled",
        BOOLEAN,
        f"{_COUNT} 0 where it is false",
        lambda value: {} if value else {_COUNT: 0},
        behind=(_COUNT,),
    ),
    converted(
        "spec.hardware.gpu.vendor",
        one_of(*_ACCELERATORS),
        f"{_ACCELERATOR} (nvidia: cuda, amd: rocm, intel: intel)",
        lambda value: {_ACCELERATOR: _ACCELERATORS[value]},
        behind=(_ACCELERATOR, "spec.hardware.gpu.runtime"),
    ),
    alias("spec.hardware.gpu.runtime", one_of("vulkan", "rocm"), _ACCELERATOR),
    answered(
        "spec.hardware.gpu.memory",
        AMOUNT,
        "what it takes is worked out from the header, and what a device has is its FleetNode's",
    ),
)
