"""What is said of the tensors that a service puts elsewhere than their layers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.problem import Finding
from reconciler.capacity.smaller import ModelRequest
from reconciler.fleet.workload import Workload
from reconciler.memory.overrides import unmatched

_FIELD = "tensorOverrides"


def override_findings(
    service: InferenceService, workload: Workload, requests: Sequence[ModelRequest]
) -> Iterator[Finding]:
    """Patterns that are found in no tensor, and models whose tensors are not known by name."""
    spec = service.spec
    for index, (model, request) in enumerate(zip(workload.models, requests, strict=True)):
        patterns = [pattern for pattern, _ in request.settings.overrides]
        if not patterns:
            continue
        own = spec.models[index].tensor_overrides if spec.models else None
        at = f"spec.models[{index}].{_FIELD}" if own is not None else f"spec.{_FIELD}"
        if not request.facts.layer_tensors:
            message = (
                f"the tensors of {model.name} are not known by name: what may go elsewhere is"
                " counted there and where it comes from"
            )
            yield Finding("MemoryUnknown", service.ref, at, message)
            continue
        written = (spec.tensor_overrides if own is None else own) or ()
        for pattern in unmatched(request.facts, patterns):
            place = next(i for i, text in enumerate(written) if f"{pattern}=" in text)
            message = f"{pattern} is in the name of no tensor of {model.name}; remove it"
            yield Finding("FieldIgnored", service.ref, f"{at}[{place}]", message)
