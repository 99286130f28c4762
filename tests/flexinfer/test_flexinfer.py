"""FlexInfer's ModelDeployment: a Model and an InferenceService, and each field of it answered.

`fields.txt` are the fields of its last definition (v1alpha1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Severity
from reconciler.flexinfer.project import FLEXINFER
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import Loaded, load
from tests.support.fleets import MemoryCheckout, document, node, service

_FIELDS = Path(__file__).with_name("fields.txt").read_text().split()
_ROWS = [row.path for row in FLEXINFER.tables["ModelDeployment"]]
SOURCE = "hf://org/tiny/tiny.gguf"
REF = ObjectRef("InferenceService", "default", "tiny")


def deployment(name: str = "tiny", **spec: Any) -> str:
    text = document("ModelDeployment", name, {"backend": "llamacpp", "model": SOURCE, **spec})
    return text.replace(API_VERSION, "ai.flexinfer/v1alpha1")


def loaded(*texts: str) -> Loaded:
    files = {f"{index}.yaml": text for index, text in enumerate((*texts, node()))}
    return load(MemoryCheckout(files), RUNTIMES)


def made(revision: Loaded, name: str = "tiny") -> tuple[Model, InferenceService]:
    assert revision.fleet, revision.errors
    model = revision.fleet.get(Model, ObjectRef("Model", "default", name))
    serving = revision.fleet.get(InferenceService, ObjectRef(REF.kind, "default", name))
    assert model
    assert serving
    return model, serving


def notes(revision: Loaded) -> dict[str, tuple[Severity, str]]:
    return {p.field: (p.severity, p.message) for p in revision.problems if p.path == "0.yaml"}


def test_every_field_of_its_definition_has_a_row_and_every_row_a_field() -> None:
    def is_answered(field: str) -> bool:
        return any(field == row or field.startswith(f"{row}.") for row in _ROWS)

    assert [field for field in _FIELDS if not is_answered(field)] == []
    assert [row for row in _ROWS if not any(f"{f}.".startswith(f"{row}.") for f in _FIELDS)] == []


def test_one_document_is_a_model_and_a_service_of_its_name() -> None:
    llamacpp = {"contextSize": 2048, "nGPULayers": 0, "batchSize": 256, "flashAttention": False}
    resources = {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}, "requests": {"memory": "2Gi"}}

    revision = loaded(
        deployment(
            replicas=2,
            idleTimeoutSeconds=300,
            nodeSelector={"gpu": "big"},
            resources=resources,
            benchmark={"warmupIterations": 1, "minDuration": "10s"},
            llamacpp={**llamacpp, "ropeFreqBase": "10000.0"},
        )
    )

    model, serving = made(revision)
    spec = serving.spec
    assert (model.spec.source, model.spec.format) == (SOURCE, "gguf")
    assert (spec.runtime, spec.model_ref, spec.replicas) == ("llamacpp", "tiny", 2)
    assert (spec.context_size, spec.gpu_layers, spec.batch_size) == (2048, 0, 256)
    assert (spec.flash_attention, spec.sleep_idle, spec.devices) == (False, 300.0, 2)
    assert spec.extra_args == ("--rope-freq-base", "10000.0")
    assert spec.node_selector == {"gpu": "big"}
    assert (spec.resources.limits, spec.resources.requests) == ({"cpu": "4"}, {"memory": "2Gi"})
    assert (spec.benchmark.warmup_iterations, spec.benchmark.min_duration) == (1, 10.0)
    assert revision.files["0.yaml"] == (model.ref, serving.ref)


def test_a_repository_of_the_hub_is_a_model_of_vllm() -> None:
    vllm = {"maxModelLen": 8192, "gpuMemoryUtilization": "0.85", "dtype": "auto", "maxNumSeqs": 4}

    revision = loaded(
        deployment(
            backend="vllm", model="Qwen/Qwen2.5-7B-Instruct", vllm={**vllm, "quantization": "None"}
        )
    )

    model, serving = made(revision)
    options = serving.spec.runtime_options or {}
    assert (model.spec.source, model.spec.format) == (
        "hf://Qwen/Qwen2.5-7B-Instruct",
        "safetensors",
    )
    assert (serving.spec.context_size, serving.spec.parallel_slots) == (8192, 4)
    assert options["gpuMemoryUtilization"] == 0.85
    assert serving.spec.extra_args == ("--dtype", "auto")


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"backend": "mlc-llm", "model": "Qwen3-8B-MLC"}, "spec.backend", "mlc-llm is no runtime"),
        ({"backend": "ollama", "model": "llama3:8b"}, "spec.model", "llama3:8b says no place"),
        ({"model": "tiny.gguf", "modelCacheRef": "x"}, "spec.model", "such as hf://ORG/REPO"),
        ({"model": "org/tiny"}, "spec.model", "org/tiny says no place"),
        ({"backend": "mlc", "mlcllm": {"share": 0.5}}, "spec.backend", "mlc is no runtime"),
    ],
)
def test_what_nothing_can_be_made_of_is_a_warning_at_its_reason(
    spec: dict[str, Any], field: str, says: str
) -> None:
    revision = loaded(deployment(**spec))

    assert revision.fleet
    assert not list(revision.fleet.all(InferenceService))
    ((found, (severity, message)),) = notes(revision).items()
    assert (found, severity) == (field, Severity.WARNING)
    assert says in message


@pytest.mark.parametrize(
    ("spec", "source", "expected"),
    [
        ({}, "HF://org/tiny", SOURCE),
        ({"model": "/models/tiny.gguf"}, "org/tiny", SOURCE),
        ({}, {"type": "huggingface", "repository": "org/tiny", "filename": "tiny.gguf"}, SOURCE),
        ({}, "hf://org/tiny/other.gguf", "hf://org/tiny/other.gguf"),
        ({"backend": "vllm", "model": "tiny"}, "huggingface://org/tiny", "hf://org/tiny"),
        ({"model": "tiny"}, "org/tiny", None),
        ({}, 7, None),
        ({}, "", None),
    ],
)
def test_a_model_is_what_a_cache_beside_it_fetches(
    spec: dict[str, Any], source: object, expected: str | None
) -> None:
    cache = document("ModelCache", "weights", {"source": source})
    both = deployment(**{"model": "tiny.gguf", "modelCacheRef": "weights", **spec})

    revision = loaded(f"{both}---\n{cache.replace(API_VERSION, 'ai.flexinfer/v1alpha1')}")

    assert revision.fleet
    found = revision.fleet.get(Model, ObjectRef("Model", "default", "tiny"))
    assert (found and found.spec.source) == expected
    assert ("spec.model" in notes(revision)) == (expected is None)


def test_what_it_does_otherwise_is_said_at_its_line() -> None:
    group = {"gpuGroupRef": "slot", "priority": 50, "vramEstimateMB": 16000, "minReplicas": 1}

    revision = loaded(deployment(idleTimeoutSeconds=300, coldStartTimeoutSeconds=60, **group))

    assert made(revision)[1].spec.sleep_idle is None, "one that is to stay does not sleep"
    assert len([p for p in revision.problems if p.path == "0.yaml"]) == len(notes(revision))
    assert {field: severity for field, (severity, _) in notes(revision).items()} == {
        "spec.gpuGroupRef": Severity.WARNING,
        "spec.priority": Severity.WARNING,
        "spec.vramEstimateMB": Severity.NOTE,
        "spec.minReplicas": Severity.NOTE,
    }


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        (deployment(replicas="two"), "spec.replicas", ""),
        (deployment(llamacpp={"contextsize": 1}), "spec.llamacpp.contextsize", "contextSize"),
        (deployment(llamacpp={"contextSize": 1}), "spec.llamacpp.contextSize", "128"),
        (deployment(vllm={"gpuMemoryUtilization": "x"}), "spec.vllm.gpuMemoryUtilization", ""),
        (
            deployment(
                backend="vllm",
                model="a/b",
                vllm={"tensorParallelSize": 2},
                resources={"limits": {"nvidia.com/gpu": 4}},
            ),
            "",
            "keep one of them",
        ),
        (
            "apiVersion: ai.flexinfer/v1alpha1\nkind: ModelDeployment\nmetadata: {name: tiny}\n",
            "",
            '"spec" is missing',
        ),
    ],
)
def test_a_mistake_is_an_error_at_its_line_and_holds_the_service(
    text: str, field: str, says: str
) -> None:
    (problem,) = loaded(text).errors

    assert problem.path == "0.yaml"
    assert problem.field.startswith(field)
    assert says in problem.message
    assert problem.ref == REF


def test_a_problem_of_the_service_is_placed_at_the_field_that_its_author_wrote() -> None:
    revision = loaded(deployment(backend="vllm", model="a/b", idleTimeoutSeconds=300))

    (found,) = (p for p in revision.problems if p.field == "spec.idleTimeoutSeconds")
    assert "(here spec.sleepIdle)" in found.message
    assert revision.line(REF, "spec.sleepIdle") == found.line > 1


def test_a_service_of_that_name_beside_it_is_declared_twice() -> None:
    (problem,) = loaded(deployment(), service("tiny", "tiny")).errors

    assert (problem.rule, problem.path) == ("DuplicateObject", "1.yaml")


@pytest.mark.parametrize("version", ["ai.flexinfer/v1alpha2", "flexinfer.ai/v2"])
def test_another_version_of_it_is_not_read(version: str) -> None:
    revision = loaded(deployment().replace("ai.flexinfer/v1alpha1", version))

    assert [p.rule for p in revision.problems if p.path == "0.yaml"] == ["NotRead"]
