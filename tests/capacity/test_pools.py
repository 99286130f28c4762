"""A node's pools and budgets, what a process takes of them, and refusals that help."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION, MEMORY_BUDGET_ANNOTATION
from reconciler.api.model import Model
from reconciler.api.quantity import parse_bytes
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import (
    MemoryPool,
    budgeted,
    needs,
    pools,
    resident,
    settled,
    taken_bytes,
)
from reconciler.capacity.remedies import Occupancy, refusal, shortfall
from reconciler.capacity.smaller import Asked, ModelRequest
from reconciler.fleet.workload import PoolNeed, Workload
from reconciler.memory import MemorySettings, ModelFacts, estimate
from tests.support.builders import workload

GIB = 2**30
METAL = {"vendor": "Apple", "memory": "unified"}
L4 = {"vendor": "NVIDIA", "memory": "24Gi"}


def node(memory: str | None = "32Gi", devices: tuple[Any, ...] = (), **rules: Any) -> FleetNode:
    return FleetNode.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "FleetNode",
            "metadata": {"name": "box"},
            "spec": {"hardware": {"memory": memory, "devices": devices}, "memory": rules}
            if memory
            else {"hardware": {"devices": devices}, "memory": rules},
        }
    )


def service(
    memory: dict[str, Any] | None = None, annotation: str | None = None
) -> InferenceService:
    annotations = {MEMORY_BUDGET_ANNOTATION: annotation} if annotation else {}
    return InferenceService.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "InferenceService",
            "metadata": {"name": "chat", "annotations": annotations},
            "spec": {"modelRef": "m", "memory": memory or {}},
        }
    )


def model(name: str = "m", **hardware: Any) -> Model:
    return Model.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "Model",
            "metadata": {"name": name},
            "spec": {"source": "m.gguf", "hardware": hardware},
        }
    )


# About Qwen2.5-32B in four bits: 64 layers of 8 key heads of 128.
LARGE = ModelFacts(
    architecture="qwen2",
    file_bytes=20 * GIB,
    weights_bytes=18 * GIB,
    repackable_bytes=12 * GIB,
    tensor_count=771,
    vocabulary=152_064,
    embedding_bytes=GIB,
    head_bytes=GIB,
    block_bytes=(GIB // 4,) * 64,
    largest_bytes=GIB // 16,
    keys={
        "qwen2.block_count": 64,
        "qwen2.embedding_length": 5120,
        "qwen2.feed_forward_length": 27648,
        "qwen2.attention.head_count": 40,
        "qwen2.attention.head_count_kv": 8,
    },
)


def told(**changes: Any) -> MemorySettings:
    plain: dict[str, Any] = {
        "context": 16384,
        "slots": 1,
        "u_batch": 512,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "flash_attention": True,
        "kv_unified": True,
        "prompt_cache_bytes": 256 * 2**20,
        "repack": False,
    }
    return MemorySettings(**(plain | changes))


def asked(settings: MemorySettings, facts: ModelFacts = LARGE) -> Asked:
    return Asked((ModelRequest(facts, settings),))


def mac(memory: str = "32Gi", *neighbours: Workload, **rules: Any) -> Occupancy:
    return Occupancy("mac", pools(node(memory, (METAL,), **rules)), Ledger(neighbours))


def embed(bytes_taken: int, pool: str = "unified") -> Workload:
    return workload("embed", needs=(PoolNeed(pool, bytes_taken, 0),))


def test_a_machine_is_one_pool_unless_its_devices_have_memory_of_their_own() -> None:
    assert [p.name for p in pools(node())] == ["host"]
    assert [p.name for p in pools(node(devices=(METAL,)))] == ["unified"]
    assert [p.name for p in pools(node(devices=(L4, L4)))] == ["host", "device0", "device1"]


def test_unknown_memory_makes_no_pool() -> None:
    assert pools(node(None)) == ()
    assert [p.name for p in pools(node(None, (L4,)))] == ["device0"]
    assert [p.budget_bytes for p in pools(node(None, budget="8Gi"))] == [8 * GIB]


@pytest.mark.parametrize(
    ("memory", "rules", "budget", "basis"),
    [
        ("36Gi", {}, int(36 * GIB * 0.67), "36.0 GiB x 0.67 = 24.1 GiB"),
        ("37Gi", {}, int(37 * GIB * 0.75), "37.0 GiB x 0.75 = 27.8 GiB"),
        ("32Gi", {"fraction": 0.5}, 16 * GIB, "32.0 GiB x 0.5 = 16.0 GiB"),
        (
            "32Gi",
            {"fraction": 0.5, "reserve": "2Gi"},
            14 * GIB,
            "32.0 GiB x 0.5 - 2.0 GiB reserve = 14.0 GiB",
        ),
        ("32Gi", {"budget": "20Gi", "fraction": 0.1}, 20 * GIB, "20.0 GiB stated"),
        ("8Gi", {"budget": "1Gi", "reserve": "2Gi"}, 0, "1.0 GiB stated - 2.0 GiB reserve = 0 B"),
    ],
)
def test_the_budget_is_a_share_or_a_stated_size_less_the_reserve(
    memory: str, rules: dict[str, Any], budget: int, basis: str
) -> None:
    (pool,) = pools(node(memory, **rules))

    assert (pool.budget_bytes, pool.basis) == (budget, basis)


def test_a_device_gives_nearly_all_of_its_memory() -> None:
    _, device = pools(node(devices=(L4,)))

    assert device.budget_bytes == int(24 * GIB * 0.95)


def test_the_closest_statement_about_the_budget_wins() -> None:
    known = pools(node("32Gi", fraction=0.5))
    by_model = model(memoryBudget="12Gi")
    by_other = model("n", memoryFraction=0.25)

    def budget(*args: Any) -> tuple[int, str]:
        (pool,) = budgeted(known, *args)
        return pool.budget_bytes // GIB, pool.basis

    assert budget(service(), [model()]) == (16, "32.0 GiB x 0.5 = 16.0 GiB")
    assert budget(service(), [by_model]) == (12, "12.0 GiB by Model m")
    assert budget(service(), [by_model, by_other])[0] == 8
    assert budget(service({"budget": "6Gi"}), [by_model]) == (6, "6.0 GiB by spec.memory")
    assert budget(service({"fraction": 0.75}), [by_model])[0] == 24
    assert budget(service({"budget": "6Gi"}, "5Gi"), [by_model])[0] == 5
    assert budget(service({"budget": "6Gi"}, "five"), [])[0] == 6


def test_a_services_budget_is_about_the_device_where_there_is_one() -> None:
    host, device = budgeted(pools(node(devices=(L4,))), service({"budget": "4Gi"}), [])

    assert (host.basis, device.budget_bytes) == ("32.0 GiB x 0.67 = 21.4 GiB", 4 * GIB)


def test_weights_are_copied_for_the_cpu_only_where_the_cpu_computes() -> None:
    plain = told(repack=True)
    all_but_the_head = replace(plain, gpu_layers=64)
    all_of_it = replace(plain, gpu_layers=65)

    assert settled(plain, node(), 64).repack
    assert not settled(plain, node(devices=(METAL,)), 64).repack
    assert not settled(all_of_it, node(devices=(METAL,)), 64).repack
    assert settled(all_but_the_head, node(devices=(METAL,)), 64).repack
    # which copies what it computes
    assert not settled(all_but_the_head, node(devices=(L4,)), 64).repack


def test_one_pool_takes_everything() -> None:
    whole = estimate(LARGE, told())
    (unified,) = needs(whole, told(), pools(node(devices=(METAL,))), LARGE, "sha")

    assert (unified.bytes, unified.weights) == (whole.total_bytes, (("sha", 18 * GIB),))


def test_a_device_takes_what_it_computes_with_and_the_machine_what_tokens_are_looked_up_in() -> (
    None
):
    whole = estimate(LARGE, told())
    host, device = needs(whole, told(), pools(node(devices=(L4,))), LARGE, "sha")

    table = LARGE.embedding_bytes
    assert device.bytes == whole.weights_bytes - table + whole.kv_bytes + whole.compute_bytes
    assert device.weights == ()
    assert host.weights == (("sha", table),)
    beside = whole.logits_bytes + whole.overhead_bytes + whole.prompt_cache_bytes
    assert table + beside < host.bytes < table + beside + 100 * 2**20


def test_an_embedding_that_makes_the_logits_too_is_on_both() -> None:
    tied = replace(LARGE, head_bytes=0, weights_bytes=LARGE.weights_bytes - LARGE.head_bytes)
    host, device = needs(estimate(tied, told()), told(), pools(node(devices=(L4,))), tied, "sha")
    _, apart = needs(estimate(LARGE, told()), told(), pools(node(devices=(L4,))), LARGE, "sha")

    assert host.weights == (("sha", tied.embedding_bytes),)
    assert device.bytes == apart.bytes - LARGE.head_bytes + tied.embedding_bytes


def test_devices_share_the_layers_by_their_memory_and_the_last_makes_the_logits() -> None:
    two = told(devices=2)
    known = pools(node(devices=(L4, L4, L4)))
    _, first, second = needs(estimate(LARGE, two), two, known, LARGE)
    _, small, large = needs(
        estimate(LARGE, two), two, pools(node(devices=(L4, {**L4, "memory": "72Gi"}))), LARGE
    )

    layer = LARGE.block_bytes[0] + estimate(LARGE, two).layer_bytes[0]
    # 33 layers on the first; on the second 31, and the head
    assert second.bytes - first.bytes == LARGE.head_bytes - 2 * layer
    assert first.bytes - small.bytes == large.bytes - second.bytes == 16 * layer


@pytest.mark.parametrize(
    ("how", "shares"),
    [
        ({"split_mode": "layer", "tensor_split": (3, 1)}, (48 / 64, 16 / 64)),
        ({"split_mode": "layer", "tensor_split": (1, 0)}, (1, 0)),
        ({"split_mode": "tensor", "tensor_split": (3, 1)}, (3 / 4, 1 / 4)),
        ({"split_mode": "tensor"}, (1 / 2, 1 / 2)),
        ({"split_mode": "row", "main_device": 1}, (1 / 2, 1 / 2)),
    ],
    ids=str,
)
def test_what_is_split_is_counted_where_it_goes(
    how: dict[str, Any], shares: tuple[float, ...]
) -> None:
    settings = told(devices=2, **how)
    made = estimate(LARGE, settings)
    weights = sum(LARGE.block_bytes) + LARGE.head_bytes

    _, *devices = needs(made, settings, pools(node(devices=(L4, L4))), LARGE)

    layers = made.kv_bytes if how["split_mode"] != "row" else 0
    apart = [need.bytes for need in devices]
    kept = [share * (weights + layers) for share in shares]
    if how["split_mode"] == "row":
        kept[1] += made.kv_bytes
    for taken, least in zip(apart, kept, strict=True):  # and what each computes in
        assert least - GIB <= taken <= least + 2 * GIB


def test_what_is_not_split_is_on_the_main_device_alone() -> None:
    settings = told(devices=2, split_mode="none", main_device=1)
    made = estimate(LARGE, settings)

    _, only = needs(made, settings, pools(node(devices=(L4, L4))), LARGE)

    assert (only.pool, only.bytes > made.weights_bytes) == ("device1", True)


def test_no_layers_on_the_device_takes_only_what_a_batch_is_computed_in() -> None:
    off = told(gpu_layers=0)
    whole = estimate(LARGE, off)

    host, device = needs(whole, off, pools(node(devices=(L4,))), LARGE, "sha")

    assert host.weights == (("sha", LARGE.weights_bytes),)
    assert whole.weights_bytes + whole.kv_bytes < host.bytes < whole.total_bytes
    assert whole.compute_bytes + LARGE.largest_bytes <= device.bytes < 2**30


@settings(deadline=None)
@given(st.integers(1, 63))
def test_a_partial_offload_is_counted_by_layers_in_both_pools(layers: int) -> None:
    some = told(gpu_layers=layers)
    whole = estimate(LARGE, some)

    host, device = needs(whole, some, pools(node(devices=(L4,))), LARGE, "sha")

    on_device = LARGE.head_bytes + (layers - 1) * (LARGE.block_bytes[0] + whole.layer_bytes[0])
    assert on_device < device.bytes < on_device + whole.compute_bytes + 2**29
    assert host.bytes + device.bytes >= whole.total_bytes


def test_experts_that_stay_are_mapped_by_the_machine_and_on_no_device() -> None:
    experts = replace(LARGE, expert_bytes=(0, *(GIB // 8,) * 63))
    known = pools(node(devices=(L4,)))
    _, whole = needs(estimate(experts, told()), told(), known, experts, "sha")
    some = told(cpu_moe_layers=5)

    host, device = needs(estimate(experts, some), some, known, experts, "sha")

    assert host.weights == (("sha", GIB + 4 * (GIB // 8)),)
    # a batch has a copy of one tensor of them
    assert 0 < device.bytes + 4 * (GIB // 8) - whole.bytes <= 2 * LARGE.largest_bytes


def test_a_cache_that_stays_is_the_machines_but_for_the_layer_that_is_read() -> None:
    known = pools(node(devices=(L4,)))
    before, whole = needs(estimate(LARGE, told()), told(), known, LARGE)
    stays = told(kv_offload=False)
    made = estimate(LARGE, stays)

    host, device = needs(made, stays, known, LARGE)

    assert host.bytes - before.bytes == made.kv_bytes
    assert made.layer_bytes[0] <= device.bytes + made.kv_bytes - whole.bytes < 2**27


def test_a_router_takes_its_largest_resident_models() -> None:
    def one(size: int) -> tuple[PoolNeed, ...]:
        return (PoolNeed("host", size, 9),)

    assert resident([one(1), one(3), one(2)], 2) == (PoolNeed("host", 5, 9),)
    assert resident([], 1) == ()


def test_a_file_that_two_processes_map_counts_once() -> None:
    first = (PoolNeed("host", 10, 0, (("sha", 8),)),)
    second = (PoolNeed("host", 11, 0, (("sha", 8),)),)
    other = (PoolNeed("host", 9, 0, (("else", 8),)),)

    assert taken_bytes([first, second], "host") == 2 + 3 + 8
    assert taken_bytes([first, second, other], "host") == 2 + 3 + 8 + 9
    assert taken_bytes([first], "unified") == 0


def test_a_file_that_is_read_and_not_mapped_is_in_each_process() -> None:
    known = pools(node("64Gi"))

    def two(mapped: bool) -> int:
        made = ModelRequest(LARGE, told(repack=True, mapped=mapped), "sha")
        return taken_bytes([made.needs_in(known)] * 2, "host")

    read, mapped = two(False), two(True)
    assert read - mapped == LARGE.weights_bytes - 2 * LARGE.repackable_bytes


def test_what_fits_is_not_refused() -> None:
    assert refusal(asked(told()), mac("64Gi")) is None


def test_a_refusal_shows_the_arithmetic_and_remedies() -> None:
    text = refusal(asked(told()), mac("32Gi", embed(int(0.5 * GIB))))

    assert text == (
        "needs 22.6 GiB of unified memory, 20.9 GiB are free"
        " (32.0 GiB x 0.67 = 21.4 GiB budget, 512 MiB taken by default/embed);"
        " with contextSize: 9728 it fits (20.9 GiB in all);"
        " or with cacheTypeK: q8_0 and cacheTypeV: q8_0 it fits (20.7 GiB in all);"
        " or a smaller quantisation fits, with weights of 16.4 GiB at most (they are 18.0 GiB)"
    )


def test_the_budget_is_shown_as_the_share_less_what_is_in_use() -> None:
    in_use = Ledger((), {"unified": int(3.4 * GIB)})
    room = Occupancy("mac", pools(node("32Gi", (METAL,))), in_use)

    text = refusal(asked(told()), room)

    assert text is not None
    assert text.startswith(
        "needs 22.6 GiB of unified memory, 18.0 GiB are free"
        " (32.0 GiB x 0.67 = 21.4 GiB budget, 3.4 GiB in use by other processes); "
    )
    assert "a smaller quantisation fits" in text


def test_a_smaller_prompt_cache_or_fewer_slots_are_remedies_where_they_help() -> None:
    need = estimate(LARGE, told()).total_bytes
    tight = mac(budget=str(need - 2**20))
    each = told(kv_unified=False, slots=4, context=512, prompt_cache_bytes=0)
    tight_slots = mac(budget=str(estimate(LARGE, each).total_bytes - 2**20))

    assert "with promptCache: 255Mi it fits" in (refusal(asked(told()), tight) or "")
    assert "parallelSlots: 3 it fits" in (refusal(asked(each), tight_slots) or "")


def test_settings_that_fit_only_together_are_offered_together() -> None:
    long = told(context=131072, prompt_cache_bytes=8 * GIB)
    room = mac(budget="19.5Gi")

    text = refusal(asked(long), room)

    assert text is not None
    assert "; with contextSize: 4864, promptCache: 0 it fits (19.5 GiB in all)" in text


def test_no_context_below_512_tokens_is_offered() -> None:
    bare = told(prompt_cache_bytes=0, flash_attention=False)
    least = estimate(LARGE, replace(bare, context=512)).total_bytes

    enough, too_little = (
        refusal(asked(bare), mac(budget=str(budget))) or "" for budget in (least, least - 1)
    )

    odd = refusal(asked(replace(bare, context=513)), mac(budget=str(least))) or ""

    assert "; with contextSize: 512 it fits" in enough
    assert "; with contextSize: 512 it fits" in odd
    assert "contextSize" not in too_little


def test_a_smaller_quantisation_has_as_much_less_to_copy_for_the_cpu() -> None:
    room = Occupancy("n", (MemoryPool("host", None, 24 * GIB, "given"),))

    text = refusal(asked(told(repack=True)), room) or ""

    assert "with weights of 11.7 GiB at most (they are 18.0 GiB)" in text


def test_settings_that_cannot_be_made_smaller_may_help_with_the_rest_at_its_least() -> None:
    """A context of the least size already."""
    short = told(context=512, slots=2, kv_unified=False, prompt_cache_bytes=8 * GIB)
    least = replace(short, slots=1, prompt_cache_bytes=0, cache_type_k="q8_0", cache_type_v="q8_0")

    text = refusal(asked(short), mac(budget=str(estimate(LARGE, least).total_bytes))) or ""

    assert (
        "; with promptCache: 0, cacheTypeK: q8_0 and cacheTypeV: q8_0, parallelSlots: 1 it fits"
    ) in text


def test_slots_are_given_up_before_a_cache_of_four_bits() -> None:
    each = told(context=2048, slots=8, kv_unified=False, prompt_cache_bytes=0)

    text = refusal(asked(each), mac(budget="18852Mi")) or ""

    assert (
        "; with contextSize: 768, cacheTypeK: q8_0 and cacheTypeV: q8_0, parallelSlots: 1 it fits"
    ) in text


def test_where_nothing_helps_the_text_says_so() -> None:
    text = refusal(asked(told()), mac("1Gi"))

    assert text is not None
    assert text.endswith("; nothing smaller of it fits here")


def test_another_node_with_room_is_named() -> None:
    big = replace(mac("64Gi"), node="mac-2")
    unknown = Occupancy("mystery", ())

    text = refusal(asked(told()), mac("16Gi"), [unknown, big])

    assert text is not None
    assert text.endswith("; or node mac-2 has room")


def test_a_shared_file_makes_room_for_a_second_process() -> None:
    request = Asked((ModelRequest(LARGE, told(), "sha"),))
    first = workload("first", needs=request.needs_in(mac().pools))
    second = mac("36Gi", first)

    assert shortfall(request.needs_in(mac("36Gi").pools), mac("36Gi")) is None
    assert "needs 4.6 GiB of unified memory" in (refusal(request, second) or "")


def test_fewer_bits_are_offered_where_a_head_is_made_of_whole_blocks() -> None:
    """llama.cpp refuses to start with any other."""
    odd = replace(LARGE, keys={**LARGE.keys, "qwen2.attention.key_length": 80})
    long = told(context=32768)

    offered, none = (refusal(asked(long, f), mac("32Gi")) or "" for f in (LARGE, odd))
    slow = refusal(asked(replace(long, flash_attention=False)), mac("32Gi")) or ""

    assert "cacheTypeK: q4_0 and cacheTypeV: q4_0 it fits" in offered
    assert "cacheType" not in none
    assert "cacheType" not in slow


def test_no_context_is_offered_that_the_model_was_not_trained_with() -> None:
    trained = replace(LARGE, keys={**LARGE.keys, "qwen2.context_length": 4096})

    text = refusal(asked(told(context=10**6), trained), mac("32Gi"))

    assert text is not None
    assert "; with contextSize: 4096 it fits" in text


def test_a_router_is_offered_fewer_models_at_a_time_or_smaller_ones() -> None:
    router = Asked(
        (ModelRequest(LARGE, told(), "a"), ModelRequest(LARGE, told(context=8192), "b")), 2
    )
    needed = router.needs_in(mac("96Gi").pools)[0].bytes

    text = refusal(router, mac(budget=str(needed - 2**20))) or ""

    assert text.startswith("needs 43.1 GiB of unified memory, 43.1 GiB are free (")
    assert "; with contextSize: 16128 of each model it fits (43.0 GiB in all)" in text
    assert "; or with router.resident: 1 it fits (22.6 GiB in all)" in text


OFFERS = {  # a setting as it is offered -> the request with that much of it
    r"contextSize: (\d+) it fits": lambda s, n: replace(s, context=min(s.context, 256 * n)),
    r"parallelSlots: (\d+) it fits": lambda s, n: replace(s, slots=n),
    r"promptCache: (\w+) it fits": lambda s, n: replace(s, prompt_cache_bytes=n * 2**20),
}
STEP = {"contextSize": 256, "parallelSlots": 1, "promptCache": 2**20}


@settings(max_examples=60, deadline=None)
@given(
    context=st.integers(512, 2**17),
    slots=st.integers(1, 8),
    unified=st.booleans(),
    cache=st.integers(0, 8 * GIB),
    budget=st.integers(18 * GIB, 40 * GIB),
)
def test_everything_that_is_offered_fits_and_one_step_more_does_not(
    context: int, slots: int, unified: bool, cache: int, budget: int
) -> None:
    wanted = told(context=context, slots=slots, kv_unified=unified, prompt_cache_bytes=cache)
    room = Occupancy("n", (MemoryPool("unified", None, budget, "given"),))

    text = refusal(asked(wanted), room)

    if text is None:
        assert estimate(LARGE, wanted).total_bytes <= budget
        return
    for words, changed in OFFERS.items():
        if offered := re.search(f"; (?:or )?with {words}", text):
            steps = parse_bytes(int(offered[1]) if offered[1].isdecimal() else offered[1])
            steps //= STEP[words.partition(":")[0]]
            assert estimate(LARGE, changed(wanted, steps)).total_bytes <= budget
            assert estimate(LARGE, changed(wanted, steps + 1)).total_bytes > budget
