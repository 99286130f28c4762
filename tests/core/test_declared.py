"""Which fields of documents a plan's field has its value from."""

from __future__ import annotations

import pytest

from reconciler.core.declared import declared_in
from tests.support.builders import workload

CASES = {
    "contextSize": ["InferenceService chat spec.contextSize"],
    "node.hardware.memory": ["FleetNode mac spec.hardware.memory"],
    "model.gemma.sha256": ["Model gemma spec.sha256"],
    "model.a.b.format": ["Model a.b spec.format", "Model a.b spec.source"],
    "runtime": ["InferenceService chat spec.runtime", "FleetNode mac spec.defaultRuntime"],
    "image": ["InferenceService chat spec.image", "Fleet  spec.images"],
    "models": ["InferenceService chat spec.modelRef", "InferenceService chat spec.models"],
    "models[phi].contextSize": [
        'InferenceService chat spec.models["phi"].contextSize',
        "InferenceService chat spec.contextSize",
    ],
    "env.TZ": ['InferenceService chat spec.env["TZ"]'],
    "hold": ['InferenceService chat metadata.annotations["inference.llmkube.dev/hold"]'],
}


@pytest.mark.parametrize("path", CASES)
def test_a_field_of_a_plan_is_declared_in_a_service_its_model_its_node_or_the_fleet(
    path: str,
) -> None:
    found = [f"{d.ref.kind} {d.ref.name} {d.field}" for d in declared_in(workload("chat"), path)]

    assert found == CASES[path]
