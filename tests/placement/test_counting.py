"""`moeCPULayers: auto`: the number, where it becomes one, and what it never depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.fleet.workload import Workload
from reconciler.memory import ModelFacts
from reconciler.placement.assignment import Assignment, assign
from reconciler.placement.explanation import explain_service
from reconciler.report.explain import explain_text
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.placement.test_placement import GIB, facts, fleet, model, node, rules, service

CARD = {"vendor": "NVIDIA", "memory": "24Gi"}
UNIFIED = {"vendor": "Apple", "memory": "unified"}
WITH_CARD = {"hardware": {"os": "linux", "memory": "96Gi", "devices": [CARD]}}
POOL = {"agent": None, "kubernetes": {"cluster": "prod"}}
ROUTER = {"runtime": "llamacpp-router", "modelRef": None}


def mixture(layers: int = 40, dense: int = 1, each: int = GIB) -> ModelFacts:
    """Layers of which all but the first few are experts for the most part."""
    of_experts = (*(0,) * dense, *(each,) * (layers - dense))
    base = facts()
    return replace(
        base,
        keys={**base.keys, "llama.block_count": layers, "llama.expert_count": 8},
        weights_bytes=GIB + layers * (each + GIB // 16),
        embedding_bytes=GIB // 2,
        head_bytes=GIB // 2,
        block_bytes=tuple(GIB // 16 + size for size in of_experts),
        expert_bytes=of_experts,
        largest_bytes=each // 3,
    )


def placed(its: ModelFacts | None, *nodes: Resource, **spec: Any) -> Assignment:
    asks = {"moeCPULayers": "auto", **spec}
    known = {ObjectRef("Model", "default", "m"): its} if its else {}
    return assign(fleet(*nodes or (node(**WITH_CARD),), model(), service(**asks)), known)


def flags(workload: Workload) -> list[str]:
    words = RUNTIMES[workload.runtime].command(workload, NodeFacts()).argv
    return [word for i, word in enumerate(words) if "moe" in word or words[i - 1] == "--n-cpu-moe"]


def said(assignment: Assignment) -> dict[str, str]:
    return {f.rule: f.message for f in assignment.warnings if f.field.endswith("moeCPULayers")}


def test_auto_is_the_fewest_layers_with_which_the_device_has_room_for_the_model_alone() -> None:
    its = mixture()

    (workload,) = placed(its).workloads

    number = workload.counted["moeCPULayers"]
    assert flags(workload) == ["--n-cpu-moe", str(number)]
    (device,) = (need for need in workload.needs if need.pool == "device0")
    assert device.bytes <= device.budget_bytes < device.bytes + GIB
    for wanted, fits in ((number, True), (number - 1, False)):
        stated = placed(its, moeCPULayers=wanted)
        assert [w.needs for w in stated.workloads] == ([workload.needs] if fits else [])


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 8), st.sampled_from((4, 6, 12, 24)))
def test_no_smaller_number_fits_and_all_is_tried_before_a_refusal(
    layers: int, dense: int, eighths: int, card: int
) -> None:
    its = mixture(layers, min(dense, layers - 1), eighths * GIB // 2)
    cards = [{"vendor": "NVIDIA", "memory": f"{card}Gi"}] * 2
    there = node(hardware={"os": "linux", "memory": "512Gi", "devices": cards})

    found = placed(its, there, devices=2)

    by_number = [placed(its, there, devices=2, moeCPULayers=n) for n in range(layers + 1)]
    fitting = [n for n, made in enumerate(by_number) if made.workloads]
    assert [w.counted for w in found.workloads] == [{"moeCPULayers": n} for n in fitting[:1]]
    assert rules(found) == ({} if fitting else {"chat": "MemoryFits"})


@pytest.mark.parametrize(
    ("hardware", "number", "because"),
    [
        ({"memory": "96Gi", "devices": [CARD] * 3}, 22, "with 21 it takes"),
        ({"memory": "96Gi", "devices": [UNIFIED]}, 0, "no device there has memory of its own"),
        ({"memory": "96Gi"}, 0, "no device there has memory of its own"),
        ({"memory": "96Gi", "devices": [{"memory": "80Gi"}]}, 0, "room for all of it"),
    ],
)
def test_the_number_and_why_it_is_that_one_are_said(
    hardware: dict[str, Any], number: int, because: str
) -> None:
    there = node(hardware={"os": "linux", **hardware})
    found = placed(mixture(), there)

    (workload,) = found.workloads
    assert workload.counted == {"moeCPULayers": number}
    assert said(found)["NumberCounted"].startswith(f"auto on mac is {number}: ")
    assert because in said(found)["NumberCounted"]
    shown = explained(found, there, mixture())
    assert f"experts  those of {number} layers stay on the machine, by auto: " in shown
    assert because in shown


def explained(found: Assignment, there: Resource, its: ModelFacts) -> str:
    asks = service(moeCPULayers="auto")
    assert isinstance(asks, InferenceService)
    known = {ObjectRef("Model", "default", "m"): its}
    return explain_text(
        explain_service(asks, fleet(there, model(), asks), known, found), command=None
    )


def test_neighbours_and_who_reads_a_header_when_change_no_number_and_no_digest() -> None:
    its, there = mixture(), node(**WITH_CARD)
    (alone,) = placed(its).workloads
    (unread,) = placed(None).workloads
    first = service("first", priority="critical", modelRef="small")
    refs = {model().ref: its, model("small").ref: facts(2 * GIB)}
    beside = assign(
        fleet(there, model(), model("small"), first, service(moeCPULayers="auto")), refs
    )

    # what was counted for the whole device is refused beside another, and not squeezed
    assert rules(beside) == {"chat": "MemoryFits"}
    (refused,) = beside.admissions[0].refused
    assert refused.workload.counted == alone.counted != {}
    assert alone.inputs_digest == unread.inputs_digest == refused.workload.inputs_digest
    assert unread.is_uncounted
    assert not alone.is_uncounted
    assert flags(unread) == ["--cpu-moe"]


def test_the_budget_of_the_service_and_its_context_do_change_it() -> None:
    numbers = [
        placed(mixture(), **spec).workloads[0].counted["moeCPULayers"]
        for spec in ({}, {"memory": {"fraction": 0.5}}, {"contextSize": 2**19})
    ]

    assert numbers[0] < min(numbers[1:])


@pytest.mark.parametrize(
    ("kind", "hardware", "rule"),
    [
        ({}, {}, "NumberCounted"),  # its agent knows
        ({"memory": {"budget": "64Gi"}}, {}, "MemoryUnknown"),  # not even it
        (POOL, {}, "MemoryUnknown"),
    ],
)
def test_where_the_devices_are_not_known_all_stay_on_the_machine_and_that_is_said(
    kind: dict[str, Any], hardware: dict[str, Any], rule: str
) -> None:
    found = placed(mixture(), node(hardware=hardware, **kind))

    (workload,) = found.workloads
    assert flags(workload) == ["--n-cpu-moe", "40"]
    assert list(said(found)) == [rule]


def test_pods_wait_for_the_header_that_the_number_follows_from_and_machines_read_it_first() -> None:
    pool = node(**WITH_CARD, **POOL)
    (hold,) = placed(None, pool).holds
    assert (hold.finding.rule, hold.finding.field) == ("HeaderNeeded", "spec.moeCPULayers")
    assert "header of Model m, which is not known here yet" in hold.finding.message

    assert not placed(None, pool, moeCPUOffload=True).holds
    assert not placed(None, pool, moeCPULayers=3).holds
    assert not placed(None).holds
    (workload,) = placed(mixture(), pool).workloads
    assert flags(workload) == ["--n-cpu-moe", str(workload.counted["moeCPULayers"])]
    assert placed(None, pool).workloads == ()


def test_each_model_of_a_router_has_its_own_number() -> None:
    entries = [
        {"name": "m", "moeCPULayers": "auto"},
        {"name": "b"},
        {"name": "c", "moeCPUOffload": True},
    ]
    refs = {
        model(name).ref: mixture(each=size * GIB)
        for name, size in zip("mbc", (1, 2, 1), strict=True)
    }
    there = node(**WITH_CARD)

    for shared, counted in (("auto", {"m", "b"}), (2, {"m"})):
        asks = service(**ROUTER, models=entries, moeCPULayers=shared, memory={"mode": "warn"})
        (workload,) = assign(fleet(there, model(), model("b"), model("c"), asks), refs).workloads
        assert workload.counted.keys() == {f"models[{name}].moeCPULayers" for name in counted}
        assert not workload.is_uncounted
        command = RUNTIMES["llamacpp-router"].command(workload, NodeFacts())
        preset = command.files["preset.ini"]
        assert f"n-cpu-moe = {workload.counted['models[m].moeCPULayers']}\n" in preset
        assert preset.count("n-cpu-moe = ") == 2
        assert preset.count("\ncpu-moe = true\n") == 1


def test_auto_for_a_model_without_experts_is_a_warning_and_none() -> None:
    its = replace(facts(), block_bytes=(GIB // 2,) * 2)

    found = placed(its)

    assert list(said(found)) == ["FieldIgnored"]
    assert [flags(w) for w in found.workloads] == [[]]
