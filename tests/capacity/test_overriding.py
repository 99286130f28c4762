"""Tensors that a service puts elsewhere than their layers: counted where they go, and said where
they go nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.memory import ModelFacts
from reconciler.placement.assignment import Assignment, assign
from tests.placement.test_placement import GIB, facts, fleet, model, node, rules, service

CARD = {"vendor": "NVIDIA", "memory": "24Gi"}
LAYERS = 10


def known() -> ModelFacts:
    """Each layer has a tensor of 1 GiB, and one of 0.5; the logits are made by the embedding."""
    base = facts(LAYERS * 3 * GIB // 2 + GIB)
    return replace(
        base,
        keys={**base.keys, "llama.block_count": LAYERS},
        embedding_bytes=GIB,
        block_bytes=(3 * GIB // 2,) * LAYERS,
        largest_bytes=GIB,
        layer_tensors=(
            ("ffn_up.weight", ((0, LAYERS, GIB),)),
            ("attn_q.weight", ((0, LAYERS, GIB // 2),)),
        ),
        other_tensors=(("token_embd.weight", GIB),),
    )


def placed(its: ModelFacts, devices: int = 1, **spec: Any) -> Assignment:
    cards = [CARD] * devices
    there = node(hardware={"os": "linux", "memory": "256Gi", "devices": cards})
    asks = service(devices=devices, **spec) if devices else service(**spec)
    return assign(fleet(there, model(), asks), {model().ref: its})


def taken(found: Assignment) -> dict[str, float]:
    """Weights in GiB by pool, to the nearest half: what is computed in is little here."""
    (workload,) = found.workloads
    return {need.pool: need.bytes * 2 // GIB / 2 for need in workload.needs}


@pytest.mark.parametrize(
    ("overrides", "device", "host"),
    [
        ([], 16.0, 1.0),
        (["ffn_up=CPU"], 6.0, 11.0),
        ([r"^blk\.[0-4]\.=CPU"], 8.5, 8.5),
        ([r"blk\.[0-4]\.ffn=CPU", r"blk\.[0-4]\.=CPU"], 8.5, 8.5),
        (["attn_q=CUDA0,attn=CPU"], 16.0, 1.0),  # the first decides
        (["token_embd=CPU"], 15.0, 1.0),  # no second copy for the logits
        (["token_embd=CUDA0"], 17.0, 0.0),  # and a copy for a batch
    ],
)
def test_what_is_moved_is_counted_where_it_goes(
    overrides: list[str], device: float, host: float
) -> None:
    found = taken(placed(known(), tensorOverrides=overrides))

    buffers = 2.5 if overrides and "CPU" in str(overrides) else 0.5  # tensors copied for a batch
    assert device <= found["device0"] <= device + buffers
    assert host <= found["host"] <= host + 0.5


def test_a_device_has_what_is_brought_to_it_from_another() -> None:
    even = taken(placed(known(), devices=2))
    moved = taken(placed(known(), devices=2, tensorOverrides=["attn_q=CUDA1"]))

    assert moved["device0"] == even["device0"] - 3.0  # of six layers
    assert moved["device1"] == even["device1"] + 3.0


def test_where_no_names_are_known_both_places_have_room_for_all_and_that_is_said() -> None:
    blind = replace(known(), layer_tensors=(), other_tensors=())
    found = placed(blind, tensorOverrides=["ffn_up=CPU"])

    assert taken(found)["device0"] >= 16.0
    assert taken(found)["host"] >= 17.0
    (said,) = (f for f in found.warnings if f.rule == "MemoryUnknown")
    assert said.field == "spec.tensorOverrides"


@pytest.mark.parametrize(
    ("spec", "at"),
    [
        ({"tensorOverrides": ["ffn_up=CPU", "attn_q=CPU,exps=CPU"]}, "spec.tensorOverrides[1]"),
        (
            {
                "runtime": "llamacpp-router",
                "modelRef": None,
                "models": [{"name": "m", "tensorOverrides": ["exps=CPU"]}],
            },
            "spec.models[0].tensorOverrides[0]",
        ),
    ],
)
def test_a_pattern_that_is_in_no_name_is_a_warning_at_its_line(
    spec: dict[str, Any], at: str
) -> None:
    (said,) = (f for f in placed(known(), **spec).warnings if f.rule == "FieldIgnored")

    assert (said.field, said.message) == (at, "exps is in the name of no tensor of m; remove it")


def test_tensors_for_devices_stay_off_a_machine_that_has_none() -> None:
    found = placed(known(), devices=0, tensorOverrides=["a=CPU", "b=CPU,c=CUDA0"])

    assert rules(found) == {"chat": "NodeCapability"}
    (hold,) = found.holds
    assert hold.finding.field == "spec.tensorOverrides[1]"
    assert not placed(known(), devices=0, tensorOverrides=["ffn=CPU"]).holds
