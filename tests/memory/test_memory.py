"""The estimate is what llama.cpp b11434 was measured to take, layer by layer and in sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gguf import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gguf.limits import LIMITS
from reconciler.memory import (
    CACHE_TYPES,
    MemorySettings,
    ModelFacts,
    beside_projector,
    estimate,
    is_projector,
    on_devices,
)
from reconciler.memory.architectures import ARCHITECTURES
from reconciler.memory.keys import FactValue, Keys
from reconciler.memory.layers import shape

MIB = 2**20

# The header of gemma-3-270m-q4_k_m.gguf, and the sums over its tensors.
GEMMA = ModelFacts(
    architecture="gemma3",
    file_bytes=253_113_024,
    weights_bytes=246_587_904,
    repackable_bytes=13_271_040,
    tensor_count=236,
    vocabulary=262_144,
    keys={
        "gemma3.context_length": 32768,
        "gemma3.embedding_length": 640,
        "gemma3.block_count": 18,
        "gemma3.feed_forward_length": 2048,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.head_count_kv": 1,
        "gemma3.attention.key_length": 256,
        "gemma3.attention.value_length": 256,
        "gemma3.attention.sliding_window": 512,
    },
)


def model(architecture: str, **keys: FactValue) -> ModelFacts:
    """A model with 4 layers, 8 heads, 2 of them for keys and values, and 64 wide heads."""
    plain: dict[str, FactValue] = {
        "block_count": 4,
        "embedding_length": 512,
        "feed_forward_length": 1024,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    named = {name.replace("__", "."): value for name, value in keys.items()}
    return ModelFacts(
        architecture=architecture,
        file_bytes=2**21,
        weights_bytes=2**20,
        repackable_bytes=0,
        tensor_count=10,
        vocabulary=1000,
        keys={f"{architecture}.{name}": value for name, value in (plain | named).items()},
    )


def told(context: int = 8192, **changes: Any) -> MemorySettings:
    plain: dict[str, Any] = {
        "slots": 1,
        "u_batch": 512,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "flash_attention": True,
        "kv_unified": True,
        "prompt_cache_bytes": 0,
    }
    return MemorySettings(context=context, **(plain | changes))


# One head of 64 keys and 64 values in f16, and one layer of the model above, by cell.
HEAD = 2 * (64 + 64)
LAYER = 2 * HEAD

# context, changed settings; measured: KV MiB, RSS MiB after a full prompt (None: not measured)
MEASURED = [
    (2048, {}, 21.0, 354.5),
    (8192, {}, 39.0, 379.6),
    (32768, {}, 111.0, 480.9),
    (32768, {"slots": 4}, 133.5, 508.0),
    (8192, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 20.7, 363.0),
    (8192, {"u_batch": 2048}, 61.5, 483.8),
    (8192, {"flash_attention": False}, 39.0, 474.9),
    (32768, {"swa_full": True}, 576.0, None),
]


@pytest.mark.parametrize(("context", "changes", "kv_mib", "rss_mib"), MEASURED)
def test_gemma_270m_takes_what_was_measured(
    context: int, changes: dict[str, Any], kv_mib: float, rss_mib: float | None
) -> None:
    found = estimate(GEMMA, told(context, **changes))

    assert found.exact
    assert found.kv_bytes / MIB == pytest.approx(kv_mib, abs=0.05)
    if rss_mib is not None:
        assert -0.01 < found.total_bytes / MIB / rss_mib - 1 < 0.05


def test_without_repacking_there_is_one_copy_of_the_weights() -> None:
    twice, once = estimate(GEMMA, told()), estimate(GEMMA, told(repack=False))

    assert twice.total_bytes - once.total_bytes == GEMMA.repackable_bytes


def test_a_tokenizer_with_merges_keeps_both_halves_of_each() -> None:
    merged = replace(GEMMA, merges=100_000)

    more = estimate(merged, told()).overhead_bytes - estimate(GEMMA, told()).overhead_bytes

    assert 12 < more / MIB < 16  # 137 bytes each, measured with 149,000 of them


def test_a_cache_type_is_as_large_as_ggml_makes_it() -> None:
    sizes = {kind.name.lower(): size for kind, size in GGML_QUANT_SIZES.items()}

    assert {name: sizes[name] for name in CACHE_TYPES} == CACHE_TYPES


def test_a_cache_type_that_is_not_known_is_as_large_as_the_largest() -> None:
    plain, unknown = (
        estimate(model("llama"), told(cache_type_k=name, cache_type_v=name)).kv_bytes
        for name in ("f16", "brand-new")
    )

    assert unknown == 2 * plain == 4 * 8192 * 2 * (64 + 64) * 4


def test_grouped_heads_count_once_a_group() -> None:
    assert estimate(model("llama"), told()).kv_bytes == 4 * 8192 * LAYER


def test_heads_are_counted_layer_by_layer() -> None:
    facts = model("deci", attention__head_count_kv=(8, 0, 2, 1))

    assert estimate(facts, told()).kv_bytes == (8 + 0 + 2 + 1) * 8192 * HEAD


def test_slots_share_the_cells_or_have_their_own() -> None:
    shared = estimate(model("llama"), told(8192, slots=3))
    apart = estimate(model("llama"), told(8192, slots=3, kv_unified=False))

    assert shared.kv_bytes == 4 * 8192 * LAYER
    assert apart.kv_bytes == 4 * 3 * 2816 * LAYER  # 8192 / 3 = 2730, padded to 256
    assert shared.logits_bytes == apart.logits_bytes == 3 * 1000 * 4


def test_embedding_servers_keep_logits_of_a_whole_batch_where_they_are_put_out_and_computed() -> (
    None
):
    facts = replace(model("llama"), vocabulary=100_000)

    found = estimate(facts, told(embeddings=True))
    encoder = estimate(replace(model("bert"), vocabulary=100_000), told(embeddings=True))

    assert found.logits_bytes == encoder.logits_bytes == 512 * (100_000 + 512) * 4
    assert found.compute_bytes > 512 * 100_000 * 4
    assert found.overhead_bytes - encoder.overhead_bytes > 512 * 512 * 64  # the answer itself
    assert encoder.compute_bytes < 512 * 100_000  # it has no matrix for logits


def test_experts_count_with_the_width_of_the_layer_where_they_have_none_of_their_own() -> None:
    dense = estimate(model("llama"), told()).compute_bytes
    own = model("llama", expert_count=8, expert_used_count=4, expert_feed_forward_length=1024)
    plain = model("llama", expert_count=8, expert_used_count=4)

    assert estimate(own, told()).compute_bytes == estimate(plain, told()).compute_bytes
    assert estimate(plain, told()).compute_bytes >= dense + 512 * 3 * 3 * 1024 * 4


def test_the_pattern_key_wins_over_the_architectures_period() -> None:
    window = {"attention__sliding_window": 256}
    by_table = shape("gpt-oss", model("gpt-oss", **window).keys)
    by_period = shape(
        "gpt-oss", model("gpt-oss", **window, attention__sliding_window_pattern=4).keys
    )
    by_list = shape(
        "gpt-oss",
        model(
            "gpt-oss", **window, attention__sliding_window_pattern=(True, False, False, False)
        ).keys,
    )

    assert [layer.sliding for layer in by_table.layers] == [True, False, True, False]
    assert [layer.sliding for layer in by_period.layers] == [True, True, True, False]
    assert [layer.sliding for layer in by_list.layers] == [True, False, False, False]


def test_some_architectures_begin_with_the_layer_that_sees_everything() -> None:
    facts = model("cohere2moe", attention__sliding_window=256)

    sliding = [layer.sliding for layer in shape("cohere2moe", facts.keys).layers]

    assert sliding == [False, True, True, True]


def test_a_window_of_zero_or_an_architecture_without_the_rule_slides_nowhere() -> None:
    assert shape("gemma3", model("gemma3", attention__sliding_window=0).keys).window == 0
    assert shape("qwen2", model("qwen2", attention__sliding_window=256).keys).window == 0
    assert shape("exaone4", model("exaone4", attention__sliding_window=256).keys).window == 0


def test_compressed_attention_keeps_keys_only() -> None:
    lengths = {"attention__key_length": 576, "attention__value_length": 512}
    mla = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    new = model("deepseek2", **lengths, **mla, attention__head_count_kv=1)
    old = model("deepseek2", attention__key_length=192, attention__value_length=128)
    index = {"attention__indexer__key_length": 128}
    indexed = model("deepseek32", **lengths, **mla, **index, attention__head_count_kv=1)

    assert estimate(indexed, told()).kv_bytes == 4 * 8192 * (576 + 128) * 2
    assert estimate(new, told()).kv_bytes == 4 * 8192 * 576 * 2
    assert estimate(old, told()).kv_bytes == 4 * 8192 * 2 * (192 + 128) * 2


SSM: dict[str, FactValue] = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 1024,
    "ssm__state_size": 16,
    "ssm__group_count": 1,
}
STATE = ((4 - 1) * (1024 + 2 * 16) + 16 * 1024) * 4


@pytest.mark.parametrize(
    ("architecture", "keys", "kv_layers", "state_layers"),
    [
        ("mamba2", {"attention.head_count": 0}, 0, 4),
        ("qwen3next", {}, 1, 3),
        ("qwen3next", {"full_attention_interval": 2}, 2, 2),
        ("qwen35", {"attention.recurrent_layers": (True, False, False, False)}, 3, 1),
        ("jamba", {"attention.head_count_kv": (0, 2, 0, 0)}, 1, 3),
        ("granitehybrid", {"attention.head_count_kv": (0, 0, 0, 2)}, 1, 3),
        (
            "nemotron_h",
            {"attention.head_count_kv": (0, 2, 0, 0), "feed_forward_length": (0, 0, 9, 0)},
            1,
            2,
        ),
        ("falcon-h1", {}, 4, 4),
    ],
)
def test_recurrent_layers_keep_a_state_that_does_not_grow_with_the_context(
    architecture: str, keys: dict[str, FactValue], kv_layers: int, state_layers: int
) -> None:
    facts = model(architecture, **SSM)
    facts.keys.update({f"{architecture}.{name}": value for name, value in keys.items()})  # type: ignore[attr-defined]  # a dict here

    found = estimate(facts, told(slots=2))

    assert found.exact
    assert found.kv_bytes == kv_layers * 8192 * LAYER
    assert found.state_bytes == 2 * state_layers * STATE


@pytest.mark.parametrize(
    ("keys", "recurs"),
    [
        ({"full_attention_interval": 3}, "xx-xx-x"),
        ({"full_attention_interval": 0}, "xxx-xxx"),  # as the architecture has it
        ({}, "xxx-xxx"),
        ({"attention__recurrent_layers": (1, 0, 0, 0, 0, 0, 1)}, "x-----x"),
    ],
)
def test_which_layers_recur_is_said_by_the_header_or_by_the_architecture(
    keys: dict[str, FactValue], recurs: str
) -> None:
    found = shape("qwen3next", model("qwen3next", **SSM, **keys, block_count=7).keys)

    assert "".join("x" if each else "-" for each in found.recurs) == recurs
    assert found.blocks == tuple(i for i, each in enumerate(recurs) if each == "-")


@pytest.mark.parametrize(
    "key",
    [
        "attention__shared_kv_layers",
        "attention__indexer__key_length",
        "attention__key_length_mla",
        "attention__sliding_window",
        "attention__sliding_window_pattern",
        "full_attention_interval",
    ],
)
def test_a_key_that_an_architecture_has_no_rule_for_changes_no_layer(key: str) -> None:
    plain, with_it = model("llama"), model("llama", **{key: 2})

    assert shape("llama", with_it.keys) == shape("llama", plain.keys)


@pytest.mark.parametrize(
    ("value", "number", "per_layer"),
    [
        (None, 7, (0, 0, 0)),
        ("a text", 7, (0, 0, 0)),
        (4, 4, (4, 4, 4)),
        (2.9, 2, (2, 2, 2)),
        (True, 1, (1, 1, 1)),
        ((1, 5), 5, (1, 5, 5)),
        ((1, 2, 3, 9), 9, (1, 2, 3)),
        ((), 7, (0, 0, 0)),
    ],
)
def test_a_key_is_one_number_or_one_a_layer_whatever_a_header_has_there(
    value: FactValue | None, number: int, per_layer: tuple[int, ...]
) -> None:
    read = Keys("a", {} if value is None else {"a.key": value})

    assert read.number("key", 7) == number
    assert read.per_layer("key", 3) == per_layer
    assert Keys("a", {}).number("key") == 0
    assert Keys("a", {}).per_layer("key", 2, (5, 6)) == (5, 6)


@pytest.mark.parametrize("lacking", ["block_count", "embedding_length"])
def test_a_header_that_lacks_what_everything_follows_from_is_a_bound(lacking: str) -> None:
    found = shape("llama", model("llama", **{lacking: 0}).keys)

    assert found.bound == "the header lacks block_count or embedding_length"
    assert shape("llama", model("llama").keys).bound == ""
    assert shape("llama", {}).heads == shape("llama", {}).widest_keys == 0
    assert shape("", {}).bound == "the architecture (none) is not in our table"


def test_rwkv_and_short_convolutions_have_states_of_their_own() -> None:
    rwkv = model("rwkv7", wkv__head_size=64)
    lfm = model("lfm2", shortconv__l_cache=3, attention__head_count_kv=(0, 0, 2, 0))

    assert estimate(rwkv, told()).state_bytes == 4 * 512 * (2 + 64) * 4
    assert estimate(lfm, told()).state_bytes == 3 * 512 * 2 * 4
    assert estimate(lfm, told()).kv_bytes == 8192 * LAYER


def test_layers_that_reuse_keys_and_values_have_none_of_their_own() -> None:
    pattern = (True, False, True, False)
    facts = model(
        "gemma4",
        attention__sliding_window=256,
        attention__sliding_window_pattern=pattern,
        attention__shared_kv_layers=2,
    )
    nano = model("gemma3n", block_count=30, attention__sliding_window=256)

    assert len(shape("gemma4", facts.keys).layers) == 2
    assert len(shape("gemma3n", nano.keys).layers) == 20


def test_layers_that_only_draft_tokens_have_no_cache() -> None:
    assert estimate(model("glm4moe", nextn_predict_layers=1), told()).kv_bytes == 3 * 8192 * LAYER


def test_encoders_keep_nothing() -> None:
    assert estimate(model("bert"), told()).kv_bytes == 0


def test_an_unknown_architecture_is_bounded_from_above_and_says_so() -> None:
    keys: dict[str, FactValue] = {"attention__head_count_kv": (0, 4, 2, 1)}
    facts = model("brand-new", **keys, **SSM, attention__indexer__key_length=128)

    found = estimate(facts, told())
    known = estimate(model("llama", **keys), told())

    assert not found.exact
    assert found.compute_bytes > known.compute_bytes
    assert found.weights_bytes == facts.weights_bytes
    assert found.kv_bytes == 4 * 8192 * (4 * HEAD + 2 * 128 * 2)
    assert found.state_bytes == 4 * STATE
    assert "brand-new is not in our table" in found.arithmetic[-1]


def test_a_projector_computes_an_image_as_large_as_its_header_says() -> None:
    keys: dict[str, FactValue] = {
        "clip.vision.image_size": 896,
        "clip.vision.patch_size": 14,
        "clip.vision.embedding_length": 1152,
        "clip.vision.feed_forward_length": 4304,
    }
    alone = estimate(GEMMA, told())
    projector = replace(GEMMA, architecture="clip", keys=keys)

    found = beside_projector(alone, projector)
    blind = beside_projector(alone, replace(projector, keys=keys | {"clip.vision.patch_size": 0}))

    image = 4 * (64 * 64 * (2 * 4304 + 3 * 1152) + 3 * 896 * 896)
    assert is_projector(projector)
    assert not is_projector(GEMMA)
    assert found.projector_bytes == projector.weights_bytes + image
    assert found.arithmetic[-1] == (
        "projector  235 MiB = 236 tensors of the file + 198 MiB for an image"
        " = (4096 patches x 12064 + 3 x 896 x 896) x 4 B"
    )
    assert found.unknown == ("the projector's buffers for an image larger than 896 x 896",)
    assert blind.projector_bytes == projector.weights_bytes
    assert blind.unknown == ("the projector's buffers for an image",)
    assert found.total_bytes - alone.total_bytes == found.projector_bytes


def test_the_arithmetic_names_every_part_and_its_numbers() -> None:
    lines = estimate(GEMMA, told(prompt_cache_bytes=256 * MIB)).arithmetic

    assert lines[1] == (
        "kv  39.0 MiB = 15 sliding layers x 1024 cells x 1 head x (256 f16 + 256 f16)"
        " + 3 layers x 8192 cells x 1 head x (256 f16 + 256 f16)"
    )
    assert [line.split("  ")[0] for line in lines] == [
        "weights",
        "kv",
        "logits",
        "compute",
        "overhead",
        "prompt cache",
    ]


# embedding, inner size, state size, slots; the server's compute buffer, MiB, at 4096 cells
RECURRENT = [
    (256, 512, 16, 1, 7.54),
    (256, 512, 16, 4, 7.66),
    (256, 512, 64, 4, 8.03),
    (512, 1024, 16, 4, 15.30),
]


@pytest.mark.parametrize(("embedding", "inner", "state", "slots", "mib"), RECURRENT)
def test_mambas_compute_buffer_is_bounded_closely(
    embedding: int, inner: int, state: int, slots: int, mib: float
) -> None:
    facts = model(
        "mamba",
        embedding_length=embedding,
        feed_forward_length=0,
        attention__head_count=0,
        attention__head_count_kv=0,
        ssm__conv_kernel=4,
        ssm__inner_size=inner,
        ssm__state_size=state,
    )

    found = estimate(facts, told(4096, slots=slots))

    assert mib <= found.compute_bytes / MIB < 1.15 * mib


@pytest.mark.parametrize(
    ("head", "slots", "mib"), [(64, 1, 9.52), (128, 1, 10.77), (128, 4, 12.57)]
)
def test_a_hybrids_compute_buffer_is_bounded(head: int, slots: int, mib: float) -> None:
    facts = model(
        "qwen35",
        embedding_length=256,
        feed_forward_length=512,
        attention__head_count=4,
        ssm__conv_kernel=4,
        ssm__inner_size=4 * head,
        ssm__state_size=head,
        ssm__group_count=2,
    )

    found = estimate(facts, told(4096, slots=slots))

    assert mib <= found.compute_bytes / MIB < 1.2 * mib
    assert found.kv_bytes == 4096 * LAYER  # as llama.cpp logs it: 2.00 MiB
    assert found.state_bytes == pytest.approx(slots * {64: 0.21, 128: 0.785}[head] * MIB, rel=0.03)


def test_an_encoders_mask_grows_with_the_batch_and_not_with_the_context() -> None:
    small, large = (estimate(model("bert"), told(size, u_batch=2048)) for size in (4096, 32768))

    assert small.compute_bytes == large.compute_bytes
    assert small.compute_bytes > 2048 * 2048 * 2


def test_checkpoints_are_copies_of_the_sliding_layers() -> None:
    found = estimate(GEMMA, told(checkpoints=2, slots=4))

    assert found.state_bytes == 4 * 2 * 15 * 1024 * 1024  # 1024 cells of 1 KiB in 15 layers


numbers = st.integers(0, 2**31)
some_settings = st.builds(
    MemorySettings,
    context=st.integers(0, 2**27),
    slots=st.integers(0, 1024),
    u_batch=st.integers(1, 65536),
    cache_type_k=st.sampled_from([*CACHE_TYPES, "unheard-of"]),
    cache_type_v=st.sampled_from([*CACHE_TYPES]),
    flash_attention=st.booleans(),
    kv_unified=st.booleans(),
    prompt_cache_bytes=numbers,
    embeddings=st.booleans(),
    swa_full=st.booleans(),
    checkpoints=st.integers(0, 32),
)


@st.composite
def any_facts(draw: st.DrawFn) -> ModelFacts:
    """Whatever the header walker lets through: every key absent, a number or a list."""
    architecture = draw(st.sampled_from([*ARCHITECTURES, "", "unknown", "a.b"]))
    keys: dict[str, FactValue] = {}
    for name in draw(st.lists(st.sampled_from(sorted(LIMITS)), unique=True)):
        low, high = LIMITS[name]
        number = st.integers(low, min(high, 200) if name == "block_count" else high)
        lists = st.lists(number | st.booleans(), max_size=6).map(tuple)
        keys[f"{architecture}.{name}"] = draw(number | lists)
    return ModelFacts(
        architecture, 2**40, draw(numbers), draw(numbers), 1, draw(st.integers(0, 2**22)), keys
    )


@settings(max_examples=400, deadline=None)
@given(any_facts(), some_settings)
def test_an_estimate_never_raises_and_never_goes_below_the_weights(
    facts: ModelFacts, given_settings: MemorySettings
) -> None:
    found = estimate(facts, given_settings)

    assert found.total_bytes >= found.weights_bytes == facts.weights_bytes
    assert min(found.kv_bytes, found.state_bytes, found.logits_bytes, found.compute_bytes) >= 0
    assert sum(found.layer_bytes) <= found.kv_bytes + found.state_bytes
    split = on_devices(facts, given_settings, found, [2, 1])
    assert min(split.machine, split.mapped, *split.devices) >= 0
    kept = found.weights_bytes + found.kv_bytes + found.state_bytes
    assert split.machine + sum(split.devices) >= kept
    assert all(line.isprintable() for line in found.arithmetic)


@settings(max_examples=200, deadline=None)
@given(any_facts(), some_settings, st.integers(1, 2**20))
def test_a_larger_context_never_needs_less(
    facts: ModelFacts, given_settings: MemorySettings, more: int
) -> None:
    small = replace(given_settings, context=max(given_settings.context, 1))
    large = replace(small, context=small.context + more)

    assert estimate(facts, large).total_bytes >= estimate(facts, small).total_bytes
