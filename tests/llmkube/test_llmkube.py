"""LLMKube's documents: each field of its definitions is ours, another name of ours, or answered.

`fields.txt` are the fields of its CRDs of release 0.9.19: kind, path, and the type or the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.kinds import KINDS
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.llmkube.project import LLMKUBE
from reconciler.placement.assignment import assign
from reconciler.report.flag_origins import flag_origins
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import Loaded
from tests.support.fleets import document, load_texts, model, node, service

_FIELDS = [
    line.split(" ", 2) for line in Path(__file__).with_name("fields.txt").read_text().splitlines()
]
_VALUES: Mapping[str, object] = {
    "boolean": True,
    "integer": 512,
    "number": 0.5,
    "object": {},
    "quantity": "1Gi",
    "list of object": [],
    "list of string": [],
}
_OF_ITS_OWN: Mapping[str, object] = {
    "spec.ropeScaling.factor": "2",
    "spec.vllmConfig.attentionBackend": "FLASH_ATTN",
    "spec.hardware.gpu.count": 2,
    "spec.hardware.memoryBudget": "2Gi",
    "spec.sha256": "0" * 64,
    "spec.source": "https://models.test/a.gguf",
    "spec.parallelSlots": 4,
    "spec.autoscaling.metrics[].targetAverageUtilization": 50,
    "spec.vllmConfig.tensorParallelSize": 2,
    "spec.resources.gpu": 2,
}
# Said with an error, as nothing here would do what they ask for.
_REFUSED = {
    ("spec.runtime", "personaplex"),
    ("spec.runtime", "sglang"),
    ("spec.runtime", "tgi"),
    ("spec.runtime", "llamacpp-router"),  # it needs models
    ("spec.format", "pytorch"),
    ("spec.ropeScaling.type", "longrope"),  # llama.cpp has no such word
    ("spec.autoscaling.minReplicas", "512"),  # and maxReplicas is 1
}


def _written() -> Iterator[tuple[str, str, object]]:
    for kind, path, shape in _FIELDS:
        if kind not in KINDS:
            continue  # test_pools.py has those
        if path in _OF_ITS_OWN:
            yield kind, path, _OF_ITS_OWN[path]
        elif shape == "string":
            yield kind, path, "gemma"
        elif shape in _VALUES:
            yield kind, path, _VALUES[shape]
        else:
            yield from ((kind, path, _typed(word)) for word in shape.split())


def _typed(word: str) -> object:
    return int(word) if word.isdigit() else word


def _spec(kind: str, path: str, value: object) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if kind == "Model":
        spec["source"] = "https://models.test/gemma.gguf"
    else:
        spec["modelRef"] = "gemma"
        spec["runtime"] = "vllm" if "vllm" in path else "llamacpp"
    inside = spec
    *parts, last = path.removeprefix("spec.").split(".")
    for name in parts:
        if name.endswith("[]"):
            inside = {"name": "cpu"}
            spec["autoscaling" if "autoscaling" in path else name[:-2]] = (
                {"metrics": [inside]} if "autoscaling" in path else [inside]
            )
        else:
            inside = inside.setdefault(name, {})
    inside[last] = value
    if path.startswith("spec.speculativeDecoding.draftModel"):
        inside["type"] = "draft"
    elif path.startswith("spec.speculativeDecoding") and str(value).startswith("draft"):
        inside["draftModelRef"] = "gemma"
    return spec


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [pytest.param(*row, id="-".join(map(str, row))) for row in _written()],
)
def test_each_field_of_theirs_is_read_or_refused_by_name(
    kind: str, path: str, value: object
) -> None:
    spec = _spec(kind, path, value)
    beside = [] if kind == "Model" else [model("gemma")]

    problems = load_texts(document(kind, "gemma", spec), *beside, node()).problems

    errors = [p for p in problems if p.severity.value == "error"]
    refused = (path, str(value)) in _REFUSED
    assert bool(errors) == refused, errors
    assert all(p.field.startswith((path, "spec.extraArgs")) or refused for p in errors)


def test_each_row_is_a_field_of_theirs() -> None:
    theirs = {(kind, path.replace("[]", "")) for kind, path, _ in _FIELDS}

    rows = {(kind, row.path) for kind, rows in LLMKUBE.tables.items() for row in rows}

    assert rows <= theirs


def loaded(spec: Mapping[str, Any], of_model: Mapping[str, Any] | None = None) -> Loaded:
    return load_texts(service(**spec), model(**(of_model or {})), node())


def service_of(revision: Loaded) -> InferenceService:
    assert revision.errors == ()
    made = revision.standing.get(InferenceService, ObjectRef("InferenceService", "default", "chat"))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"resources": {"gpu": 2}}, {"devices": 2}),
        ({"resources": {"gpu": 0}}, {"gpuLayers": 0}),
        (
            {"resources": {"gpuSharing": {"mode": "partitioned", "profile": "3g.40gb"}}},
            {"resources": {"limits": {"nvidia.com/mig-3g.40gb": 1}}},
        ),
        (
            {"resources": {"cpu": "2", "memory": "4Gi"}},
            {"resources": {"requests": {"cpu": "2", "memory": "4Gi"}}},
        ),
        (
            {"resources": {"memory": "4Gi", "hostMemory": "6Gi"}},
            {"resources": {"requests": {"memory": "6Gi"}}},
        ),
        (
            {"rolloutPolicy": {"waitForIdle": True, "idleTimeoutSeconds": 86400}},
            {"rollout": {"drainTimeout": "24h"}},
        ),
        ({"rolloutPolicy": {"waitForIdle": True}}, {"rollout": {"drainTimeout": "5m"}}),
        (
            {"disruption": {"protectAlways": True}, "podAnnotations": {"a": "b"}},
            {"podAnnotations": {"a": "b", "karpenter.sh/do-not-disrupt": "true"}},
        ),
        ({"disruption": {"protectAlways": False}}, {}),
        ({"mode": "embedding"}, {"runtimeOptions": {"embeddings": True}}),
        ({"mode": "chat"}, {}),
        (
            {"reasoningBudget": 0, "extraArgs": ["--temp", "1"]},
            {"extraArgs": ["--temp", "1", "--reasoning-budget", "0"]},
        ),
        (
            {"reasoningBudget": 0, "extraArgs": ["--reasoning-budget=0"]},
            {"extraArgs": ["--reasoning-budget=0"]},
        ),
        (
            {"ropeScaling": {"type": "yarn", "factor": "4", "originalContext": 8192}},
            {
                "extraArgs": [
                    *("--rope-scaling", "yarn"),
                    *("--rope-scale", "4"),
                    *("--yarn-orig-ctx", "8192"),
                ]
            },
        ),
        (
            {
                "runtime": "vllm",
                "vllmConfig": {
                    "maxModelLen": 4096,
                    "tensorParallelSize": 2,
                    "gpuMemoryUtilization": 0.8,
                    "enablePrefixCaching": False,
                    "kvCacheDtype": "fp8_e5m2",
                },
            },
            {
                "runtime": "vllm",
                "contextSize": 4096,
                "devices": 2,
                "runtimeOptions": {"gpuMemoryUtilization": 0.8},
                "extraArgs": ["--no-enable-prefix-caching", "--kv-cache-dtype", "fp8_e5m2"],
            },
        ),
    ],
)
def test_theirs_says_the_same_as_ours(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    assert service_of(loaded(theirs)) == service_of(loaded(ours))


@pytest.mark.parametrize(
    ("gpu", "spec", "devices", "layers"),
    [
        ({"count": 2}, {}, 2, None),
        ({"count": 2}, {"devices": 1}, 1, None),
        ({"count": 0}, {}, 1, 0),
        ({"count": 0}, {"resources": {"gpu": 1}}, 1, None),
        ({"enabled": False}, {}, 1, 0),
        ({"enabled": False, "count": 2}, {}, 2, None),
        ({"layers": -1}, {}, 1, None),
        ({"layers": 20, "count": 1}, {}, 1, 20),
        ({"layers": 20}, {"gpuLayers": 5}, 1, 5),
        ({"enabled": True, "memory": "8Gi"}, {}, 1, None),
    ],
)
def test_a_service_takes_from_its_model_what_it_leaves_open(
    gpu: Mapping[str, Any], spec: Mapping[str, Any], devices: int, layers: int | None
) -> None:
    made = service_of(loaded(spec, {"hardware": {"gpu": gpu}})).spec

    assert (made.devices, made.gpu_layers) == (devices, layers)


@pytest.mark.parametrize(
    ("gpu", "spec", "ours"),
    [
        (
            {"resourceName": "kernel.org/dri", "vendor": "intel", "count": 2},
            {},
            {"devices": 2, "resources": {"limits": {"kernel.org/dri": 2}}},
        ),
        (
            {"resourceName": "kernel.org/dri"},
            {"resources": {"limits": {"kernel.org/dri": 1}}},
            {"resources": {"limits": {"kernel.org/dri": 1}}},
        ),
        ({"resourceName": "kernel.org/dri", "count": 0}, {}, {"gpuLayers": 0}),
        (
            {"resourceName": "kernel.org/dri", "count": 2},
            {"devices": 1},
            {"devices": 1, "resources": {"limits": {"kernel.org/dri": 1}}},
        ),
        (
            {"count": 2, "sharding": {"strategy": "tensor", "layerSplit": ["0-24", "25-39"]}},
            {},
            {"devices": 2, "splitMode": "row", "tensorSplit": [25, 15]},
        ),
        (
            {"count": 2, "sharding": {"strategy": "pipeline", "layerSplit": ["0-9"]}},
            {},
            {"devices": 2, "splitMode": "layer"},
        ),
        (
            {"count": 2, "sharding": {"strategy": "row", "layerSplit": ["0-1", "2-3"]}},
            {"splitMode": "none", "tensorSplit": [1, 3]},
            {"devices": 2, "splitMode": "none", "tensorSplit": [1, 3]},
        ),
        (
            {"count": 1, "sharding": {"strategy": "row", "layerSplit": ["0-9"]}},
            {},
            {"devices": 1},
        ),
        (
            {"tolerationKey": "spot"},
            {"tolerations": [{"key": "a"}]},
            {
                "tolerations": [
                    {"key": "a"},
                    {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
                ]
            },
        ),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]},
            {},
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]},
        ),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]},
            {"resourceClaims": [{"name": "mine"}]},
            {"resourceClaims": [{"name": "mine"}]},
        ),
    ],
)
def test_pods_ask_for_devices_as_their_model_says(
    gpu: Mapping[str, Any], spec: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
    assert service_of(loaded(spec, {"hardware": {"gpu": gpu}})) == service_of(loaded(ours))


@pytest.mark.parametrize(
    ("spec", "rule", "field"),
    [
        ({"endpoint": {"path": "/v1/chat/completions"}}, None, ""),
        ({"endpoint": {"path": "/other"}}, "FieldAnswered", "spec.endpoint.path"),
        ({"skipModelInit": False}, None, ""),
        ({"skipModelInit": True}, "FieldAnswered", "spec.skipModelInit"),
        ({"resources": {"gpu": 2}, "devices": 2}, None, ""),
        ({"resources": {"gpu": 2}, "devices": 3}, "Schema", "spec.resources.gpu"),
        (
            {"reasoningBudget": 5, "extraArgs": ["--reasoning-budget", "7"]},
            "Schema",
            "spec.reasoningBudget",
        ),
        ({"resources": {"gpu": 99}}, "Schema", "spec.resources.gpu"),
        (
            {
                "disruption": {"protectAlways": True},
                "podAnnotations": {"karpenter.sh/do-not-disrupt": "false"},
            },
            "Schema",
            "spec.disruption.protectAlways",
        ),
        ({"podSecurityContext": {"fsGroup": 102}}, None, ""),
        ({"podSecurityContext": {"runAsUser": 0}}, "Schema", "spec.podSecurityContext.runAsUser"),
        ({"podSecurityContext": {"sysctls": []}}, "Schema", "spec.podSecurityContext.sysctls"),
        ({"securityContext": {"readOnlyRootFilesystem": True}}, None, ""),
        (
            {"securityContext": {"privileged": True}},
            "SecurityRefused",
            "spec.securityContext.privileged",
        ),
        ({"affinity": {"nodeAffinity": 5}}, "Schema", "spec.affinity.nodeAffinity"),
        (
            {"resourceClaims": [{"name": "a", "request": "x"}]},
            "Schema",
            "spec.resourceClaims[0].request",
        ),
    ],
)
def test_what_has_no_effect_or_another_value_is_said_once(
    spec: Mapping[str, Any], rule: str | None, field: str
) -> None:
    problems = [(p.rule, p.field) for p in loaded(spec).problems if p.rule != "SizeUnknown"]

    assert problems[:1] == ([(rule, field)] if rule else [])


def test_what_many_documents_say_alike_is_one_note_for_the_fleet() -> None:
    alike = [model(f"m{number}", quantization="Q4_K_M") for number in range(8)]

    revision = load_texts(*alike, model("other", refreshPolicy="OnChange"))

    of_all, of_one = revision.problems
    assert (of_all.path, of_all.line, of_all.field) == ("0.yaml", 6, "spec.quantization")
    assert of_all.message.endswith(
        "of the file (the same in default/m1, default/m2, default/m3, default/m4, default/m5 and 2"
        " more)"
    )
    assert of_one.field == "spec.refreshPolicy"


def test_a_service_that_takes_from_its_model_is_the_same_object_again() -> None:
    """A new plan of an unchanged object costs nothing as long as it is identical."""
    from reconciler.runtimes import RUNTIMES
    from reconciler.source.load import LoadCache, load
    from tests.support.fleets import MemoryCheckout

    files = {"a.yaml": service(), "m.yaml": model(hardware={"gpu": {"count": 2}}), "n.yaml": node()}
    cache = LoadCache()

    first, second = (load(MemoryCheckout(files), RUNTIMES, cache) for _ in range(2))

    assert service_of(first) is service_of(second)


@pytest.mark.parametrize(
    ("args", "spec", "ours"),
    [
        (["--ctx-size", "4096"], {}, {"contextSize": 4096}),
        (["-c=4096", "--temp", "0.6"], {}, {"contextSize": 4096, "extraArgs": ["--temp", "0.6"]}),
        (["-fa", "-ngl", "-1", "--jinja"], {}, {"flashAttention": True, "jinja": True}),
        (["--n-gpu-layers", "99"], {}, {"gpuLayers": 99}),
        (
            ["--no-mmap", "--embedding"],
            {},
            {"runtimeOptions": {"loadMode": "none", "embeddings": True}},
        ),
        (["--ctx-size", "4096"], {"contextSize": 4096}, {"contextSize": 4096}),
        (["--cache-ram", "1024"], {"promptCache": "1Gi"}, {"promptCache": "1Gi"}),
        (["--sleep-idle-seconds", "600"], {}, {"sleepIdle": "10m"}),
        (["--sleep-idle-seconds", "-1"], {}, {}),
        (["-ncmoe", "30"], {}, {"moeCPULayers": 30}),
        (
            ["-ot", "a=CPU", "--override-tensor=b=CPU,c=CPU"],
            {},
            {"tensorOverrides": ["a=CPU", "b=CPU,c=CPU"]},
        ),
        (["-ot", "a=CPU"], {"tensorOverrides": ["a=CPU"]}, {"tensorOverrides": ["a=CPU"]}),
        (["--cpu-moe", "-nkvo"], {}, {"moeCPUOffload": True, "noKvOffload": True}),
        (["--kv-offload"], {}, {"noKvOffload": False}),
        (["--metrics", "-t", "8", "--alias", "other", "--host", "::"], {}, {}),
    ],
)
def test_an_argument_that_a_field_says_is_that_field(
    args: list[str], spec: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
    written, wanted = loaded({**spec, "extraArgs": args}), loaded({"extraArgs": [], **ours})

    assert service_of(written) == service_of(wanted)
    remarks = [p for p in written.problems if p.field.startswith("spec.extraArgs[")]
    assert {p.severity.value for p in remarks} <= {"note", "warning"}
    assert remarks


@pytest.mark.parametrize(
    ("args", "spec", "message"),
    [
        (["-c", "4096"], {"contextSize": 8192}, "-c says 4096, and contextSize says 8192"),
        (["-c", "0"], {}, "contextSize: "),
        (["-c", "many"], {}, "-c has another value: set contextSize instead"),
        (
            ["-ot", "b=CPU"],
            {"tensorOverrides": ["a=CPU"]},
            "-ot says ['b=CPU'], and tensorOverrides says ['a=CPU']",
        ),
        (["-ngl", "all"], {"gpuLayers": 5}, "-ngl says all, and gpuLayers says 5"),
        (["-c"], {}, "-c has another value: set contextSize instead"),
        (["--cache-type-k", "turbo3"], {}, "cacheTypeK: "),
    ],
)
def test_an_argument_that_no_field_can_say_is_an_error_at_its_line(
    args: list[str], spec: Mapping[str, Any], message: str
) -> None:
    (problem,) = loaded({**spec, "extraArgs": args}).errors

    assert problem.rule == "ForbiddenFlag"
    assert problem.field == "spec.extraArgs[0]"
    assert message in problem.message


def test_an_argument_that_is_refused_stands_where_it_is_written() -> None:
    (problem,) = loaded(
        {"extraArgs": ["--metrics", "-c", "4096", "--temp", "1", "--rpc", "x"]}
    ).errors

    assert problem.field == "spec.extraArgs[5]"


@pytest.mark.parametrize(
    ("source", "mmproj", "where"),
    [
        ("hf://org/repo/q/a.gguf@v2", "mm.gguf", "hf://org/repo/mm.gguf@v2"),
        ("hf://org/repo", "mm.gguf", "hf://org/repo/mm.gguf"),
        ("https://models.test/x/a.gguf", "mm.gguf", "https://models.test/x/mm.gguf"),
        ("/models/a.gguf", "mm.gguf", "file:///models/mm.gguf"),
        ("hf://org/repo/a.gguf", "mine/mm.gguf", "mine/mm.gguf"),
        ("weights/a.gguf", "mm.gguf", "mm.gguf"),
    ],
)
def test_the_bare_name_of_a_projector_is_a_file_beside_its_model(
    source: str, mmproj: str, where: str
) -> None:
    revision = load_texts(document("Model", "gemma", {"source": source, "mmproj": mmproj}))
    made = revision.standing.get(Model, ObjectRef("Model", "default", "gemma"))

    assert made is not None
    assert made.projector is not None
    assert made.projector.spec.source == where


def test_a_problem_of_a_field_of_ours_stands_at_theirs_and_names_both() -> None:
    revision = loaded({"resources": {"gpu": 2}})
    ref = service_of(revision).ref

    found = revision.problem(Finding("DevicesUnknown", ref, "spec.devices", "no"))

    assert (found.field, found.message) == ("spec.resources.gpu", "no (here spec.devices)")
    assert revision.line(ref, "spec.devices") == found.line


def test_flags_come_from_the_field_that_its_author_wrote() -> None:
    revision = loaded({"reasoningBudget": 3, "resources": {"gpu": 2}, "extraArgs": ["--temp", "1"]})
    chat = service_of(revision)
    assert revision.fleet
    (wanted,) = assign(revision.fleet, {}).workloads

    written = revision.written_of(chat.ref)
    found = flag_origins(chat, wanted, RUNTIMES[wanted.runtime].command, written)

    assert found["spec.reasoningBudget (spec.extraArgs here)"] == ["--reasoning-budget"]
    assert "--temp" in found["spec.extraArgs"]
    assert "spec.resources.gpu (spec.devices here)" in found
