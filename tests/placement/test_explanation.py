"""What a person is told about where a service is, and where it could be."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import Resource
from reconciler.capacity.admission import NOBODY
from reconciler.placement.assignment import Assignment, assign, beside_others
from reconciler.placement.explanation import Explanation, explain_service
from tests.placement.test_placement import GIB, declared, fleet, known, model, node, service
from tests.placement.test_pods import L4, pool

BOTH = model(), model("z", source="https://models.test/z.gguf")


def explained(*objects: Resource, weights: int = GIB) -> Explanation:
    """Of the last one."""
    of, facts = fleet(*objects), known(weights, "m", "z")
    asked = objects[-1]
    assert isinstance(asked, InferenceService)
    return explain_service(asked, of, facts, assign(of, facts))


def small(name: str) -> Resource:
    return node(name, hardware={"memory": "12Gi"})


def test_each_node_has_a_verdict_with_its_reason() -> None:
    told = explained(
        *BOTH,
        *(node("mac"), node("drained", drain=True), node("free"), small("full"), small("tiny")),
        service("zoo", modelRef="z", placement={"nodes": ["full"]}),
        service("chat"),
        weights=6 * GIB,
    )

    verdicts = {v.node: (v.fits, v.reasons[0].partition(";")[0]) for v in told.verdicts}
    assert {name: said for name, said in verdicts.items() if name != "full"} == {
        "mac": (True, "it is placed here"),
        "drained": (False, "node drained is drained (drain: true)"),
        "free": (True, "it could run here"),
        "tiny": (True, "it could run here"),
    }
    fits, why = verdicts["full"]
    assert not fits
    assert "default/zoo" in why
    assert [w.node for w in told.workloads] == ["mac"]
    assert (told.sized, told.held, told.image) == (told.workloads[0], (), None)


def test_what_was_refused_is_judged_by_its_node_as_it_was_then() -> None:
    """And not with what came after it, which shares a file with who was there."""
    told = explained(
        *BOTH,
        node("mac", hardware={"memory": "24Gi"}),
        *(service(name, modelRef="z") for name in ("a", "later")),
        service("chat"),
        weights=10 * GIB,
    )

    (verdict,) = told.verdicts
    assert told.held == (f"MemoryFits: {verdict.reasons[0]}",)
    assert " taken by default/a)" in verdict.reasons[0]


def test_what_is_held_is_sized_for_the_first_node_that_the_rules_allow() -> None:
    told = explained(model(), node("a", drain=True), node("b"), node("c"), service(placement={}))
    nowhere = explained(model(), node("a", drain=True), service(placement={"nodes": ["a"]}))

    assert told.workloads == nowhere.workloads == ()
    assert [text.partition(":")[0] for text in told.held] == ["PlacementNotStated"]
    assert told.sized is not None
    assert told.sized.node == "b"
    assert nowhere.sized is None


@pytest.mark.parametrize(
    ("pools", "of_model", "stated", "image"),
    [
        ({}, {}, {"image": "registry.test/own:1"}, ("registry.test/own:1", "service")),
        (L4, {}, {}, ("cuda", "default")),
        (L4, {"hardware": {"accelerator": "vulkan"}}, {}, ("vulkan", "default")),
    ],
)
def test_of_pods_the_image_is_told_and_who_states_it(
    pools: dict[str, Any], of_model: dict[str, Any], stated: dict[str, Any], image: tuple[str, str]
) -> None:
    held = explained(pool("edge", pools), model(**of_model), service(placement={}, **stated))

    assert held.image is not None
    assert image[0] in held.image[0]
    assert held.image[1] == image[1]


def test_warnings_are_those_of_the_service_alone() -> None:
    trained = {"contextSize": 65536, "runtime": "llama-server"}
    told = explained(node(), *BOTH, service("zoo", modelRef="z", **trained), service("chat"))
    warned = explained(node(), *BOTH, service("zoo", modelRef="z"), service("chat", **trained))

    assert [text.partition(":")[0] for text in told.warnings] == []
    assert len(warned.warnings) == 1


def _held(others: dict[str, dict[str, int]], *objects: Resource) -> dict[str, str]:
    made: Assignment = assign(fleet(*objects), known(6 * GIB, "m", "z"))
    return {h.finding.ref.name: h.finding.message for h in beside_others(made, others)}


def test_only_a_refusal_for_memory_counts_what_other_processes_use() -> None:
    world = (small("mac"), *BOTH, service(), service("zoo", modelRef="z"))
    lost = service("lost", replicas=9)
    others = {"mac": {"host": 3 * GIB}}

    alone, beside = _held(NOBODY, *world, lost), _held(others, *world, lost)

    assert "3.0 GiB in use by other processes" in beside["zoo"]
    assert "other processes" not in alone["zoo"]
    assert alone["lost"] == beside["lost"]
    assert _held(others, small("mac"), *BOTH, lost) == {"lost": alone["lost"]}


@pytest.mark.parametrize(
    ("hardware", "accelerator"),
    [
        ({}, None),
        ({"memory": "64Gi"}, "cpu"),
        ({"os": "linux"}, None),
        (L4, "cuda"),
        ({"memory": "64Gi", "devices": [{"vendor": "Unheard", "memory": "8Gi"}]}, None),
        ({"devices": [{"vendor": v, "memory": "8Gi"} for v in ("Unheard", "AMD")]}, "rocm"),
    ],
)
def test_a_pool_has_the_first_device_that_it_states_and_a_processor_where_it_states_none(
    hardware: dict[str, Any], accelerator: str | None
) -> None:
    placed = service(placement={"nodes": ["edge"]}, image="registry.test/own:1")

    (workload,) = assign(fleet(pool("edge", hardware), model(), placed), {}).workloads

    assert workload.pool is not None
    assert workload.pool.accelerator == accelerator


@pytest.mark.parametrize(
    ("runtime", "of", "rule"),
    [
        ("llama-server", {}, None),
        ("llama-server", {"mmproj": "https://models.test/p.gguf"}, None),
        ("vllm", {"format": "safetensors"}, None),
        (
            "vllm",
            {"format": "safetensors", "mmproj": "https://models.test/p.gguf"},
            "FormatMismatch",
        ),
        ("vllm", {}, "FormatMismatch"),
    ],
)
def test_a_runtime_gets_the_files_that_it_takes_and_no_projector_that_it_does_not(
    runtime: str, of: dict[str, Any], rule: str | None
) -> None:
    there = declared("Model", "m", of)

    made = assign(fleet(node(), there, service(runtime=runtime)), {})

    assert [h.finding.rule for h in made.holds] == ([rule] if rule else [])
