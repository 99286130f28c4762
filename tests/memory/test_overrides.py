"""Which bytes leave the layers they belong to, and where they go. Held against llama.cpp itself by
test_engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.memory import MemorySettings, ModelFacts, estimate, on_devices
from reconciler.memory.overrides import Moved, device_of, moved, unmatched

PLAIN = MemorySettings(
    context=256,
    slots=1,
    u_batch=512,
    cache_type_k="f16",
    cache_type_v="f16",
    flash_attention=True,
    kv_unified=True,
    prompt_cache_bytes=0,
    mapped=False,
)
UP, QUERY, EMBEDDING, HEAD = 100, 10, 1000, 3000
LAYERS = (UP + QUERY,) * 4
TIED, APART = (*LAYERS, EMBEDDING), (*LAYERS, HEAD)


def facts(*, tied: bool = True) -> ModelFacts:
    """Four layers with experts and one tensor besides, and what follows them."""
    head = () if tied else (("output.weight", HEAD),)
    return ModelFacts(
        "llama",
        *(5000, EMBEDDING + sum(LAYERS) + (0 if tied else HEAD), 0, 10, 512),
        {"llama.block_count": 4, "llama.embedding_length": 64},
        embedding_bytes=EMBEDDING,
        head_bytes=0 if tied else HEAD,
        block_bytes=LAYERS,
        expert_bytes=(UP,) * 4,
        largest_bytes=UP,
        layer_tensors=(
            ("ffn_up_exps.weight", ((0, 3, UP), (3, 1, UP))),
            ("attn_q.weight", ((0, 4, QUERY),)),
        ),
        other_tensors=(("token_embd.weight", EMBEDDING), *head),
    )


def placed(
    *overrides: str, first: int = 0, devices: int = 2, tied: bool = True, moe: int | None = 0
) -> Moved:
    pairs = tuple((text.rpartition("=")[0], text.rpartition("=")[2]) for text in overrides)
    told = replace(PLAIN, overrides=pairs, cpu_moe_layers=moe)
    return moved(facts(tied=tied), told, TIED if tied else APART, first, devices)


def left(*sizes: int) -> tuple[int, ...]:
    return (*sizes, *(0,) * (5 - len(sizes)))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (placed("attn=CPU"), Moved(left(*(QUERY,) * 4), 4 * QUERY, (0, 0), QUERY)),
        (placed(r"blk\.[01]\.=CPU"), Moved(left(110, 110), 220, (0, 0), UP)),
        # of two devices the layers from `first` on
        (placed("attn=CPU", first=3), Moved(left(*(QUERY,) * 4), QUERY, (0, 0), QUERY)),
        (placed("attn=CUDA1"), Moved(left(*(QUERY,) * 4), 0, (0, 40), 0)),
        (placed("attn=CUDA1", first=3), Moved(left(*(QUERY,) * 4), -30, (0, 40), 0)),
        # alone, it may have any number
        (placed("attn=ROCm7", devices=1), Moved(left(*(QUERY,) * 4), 0, (40,), 0)),
        # the first pattern decides, and experts that stay before any
        (placed("attn=CPU", "attn=GPU1"), placed("attn=CPU")),
        (placed("exps=GPU1", moe=2), Moved(left(*(UP,) * 4), 2 * UP, (0, 2 * UP), UP)),
        (placed("exps=GPU1", moe=None), Moved(left(*(UP,) * 4), 4 * UP, (0, 0), UP)),
        (placed("nothing=CPU", moe=1), Moved(left(UP), UP, (0, 0), UP)),
        # what tokens are looked up in, which makes the logits on a device once more
        (placed("token=CPU"), Moved(left(0, 0, 0, 0, EMBEDDING), 0, (0, 0), EMBEDDING)),
        (placed("token=CPU", first=5), Moved(left(0, 0, 0, 0, EMBEDDING), 0, (0, 0), 0)),
        (placed("token=GPU0"), Moved(left(0, 0, 0, 0, EMBEDDING), -EMBEDDING, (2000, 0), 0)),
        (placed("token=CPU", tied=False), Moved(left(), 0, (0, 0), 0)),
        (placed("token=GPU0", tied=False), Moved(left(), -EMBEDDING, (2000, 0), 0)),
        (placed("^out=CPU", tied=False), Moved(left(0, 0, 0, 0, HEAD), HEAD, (0, 0), HEAD)),
        (placed("^out=GPU1", tied=False), Moved(left(0, 0, 0, 0, HEAD), 0, (0, HEAD), 0)),
    ],
)
def test_each_tensor_is_counted_where_its_first_pattern_puts_it(
    found: Moved, expected: Moved
) -> None:
    assert found == expected


def test_where_no_names_are_known_nothing_leaves_and_all_may_come() -> None:
    blind = replace(facts(), layer_tensors=(), other_tensors=())

    def told(*buffers: str, moe: int = 0) -> Moved:
        settings = replace(PLAIN, overrides=tuple(("a", b) for b in buffers), cpu_moe_layers=moe)
        return moved(blind, settings, TIED, 2, 2)

    assert told("CPU") == Moved(left(), 1220, (0, 0), EMBEDDING)
    assert told("GPU1") == Moved(left(), 0, (0, 1440), EMBEDDING)
    assert told("GPU0", "CPU") == Moved(left(), 1220, (1440, 0), EMBEDDING)
    assert told("GPU9", moe=1) == Moved(left(), 1220, (0, 1440), EMBEDDING)


def test_a_layer_more_than_the_model_has_is_counted_with_what_follows_them() -> None:
    its = replace(facts(), layer_tensors=(("attn_q.weight", ((9, 1, 7),)),))
    told = replace(PLAIN, overrides=(("attn", "CPU"),))

    assert moved(its, told, TIED, 0, 1) == Moved(left(0, 0, 0, 0, 7), 7, (0,), 7)


def test_experts_alone_need_no_names() -> None:
    blind = replace(facts(), layer_tensors=(), other_tensors=())
    told = replace(PLAIN, cpu_moe_layers=2)

    assert moved(blind, told, TIED, 1, 2) == Moved(left(UP, UP), UP, (0, 0), UP)


def test_the_sums_of_a_model_whose_tensors_move() -> None:
    settings = replace(PLAIN, overrides=(("exps", "CPU"), ("attn", "GPU1")), devices=2)
    plain = replace(settings, overrides=(("nothing", "CPU"),))

    after, before = (
        on_devices(facts(), told, estimate(facts(), told), [1, 1]) for told in (settings, plain)
    )

    assert after.mapped - before.mapped == 4 * UP
    assert after.machine - before.machine == 4 * UP
    assert sum(after.devices) > sum(before.devices) - 4 * UP  # with room for copies


def test_a_device_without_layers_computes_what_is_brought_to_it() -> None:
    settings = replace(PLAIN, gpu_layers=0, devices=2)
    brought = replace(settings, overrides=(("attn", "GPU1"),))

    before, after = (
        on_devices(facts(), told, estimate(facts(), told), [1, 1]) for told in (settings, brought)
    )

    assert before.devices[1] == 0
    assert after.devices[1] == after.devices[0] + 4 * QUERY


def test_the_machine_and_devices_have_names() -> None:
    assert [device_of(name) for name in ("CPU", "CUDA0", "ROCm12", "Metal")] == [None, 0, 12, 0]


def test_patterns_that_are_in_no_name_are_found() -> None:
    patterns = [r"^blk\.3\.", "exps", r"blk\.4", "token_embd", "gate"]

    assert unmatched(facts(), patterns) == (r"blk\.4", "gate")
