"""The memory of models that are no GGUF: by their files and config.json, and what nobody knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.models.store import ModelStore
from reconciler.capacity.pools import needs, pools
from reconciler.fleet.model_file import ModelFile
from reconciler.memory import MLX, VLLM, ModelFacts, estimate
from reconciler.memory.config import facts_of_files
from reconciler.placement.assignment import assign
from tests.support.fleets import load_folder, model, node, service, write_fleet
from tests.support.memory import stated
from tests.support.wait import wait_for

MIB, GIB = 2**20, 2**30
CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
}
TOKEN = 36 * 8 * (128 + 128) * 2  # bytes of keys and values


def facts(config: object = CONFIG, **sizes: int) -> ModelFacts:
    named = {f"{name}.safetensors": size for name, size in sizes.items()}
    return facts_of_files(named or {"model.safetensors": GIB}, json.dumps(config).encode())


def test_weights_are_what_an_engine_loads_of_the_files() -> None:
    """Some repositories hold the same weights once more in a file of another layout."""
    parts = {"model-00001-of-00002": GIB, "model-00002-of-00002": GIB, "consolidated": 2 * GIB}

    found = facts(**parts)

    assert (found.weights_bytes, found.file_bytes) == (2 * GIB, 4 * GIB)
    sizes = found.packed_bytes, found.repackable_bytes, found.embedding_bytes, found.lookup_bytes
    assert {*sizes, found.head_bytes, found.largest_bytes} == {0}, "which only a header tells"
    assert facts_of_files({"weights.safetensors": 5, "a.json": 1}, None).weights_bytes == 5


def test_vllm_needs_its_weights_and_one_request_of_the_whole_context() -> None:
    found = estimate(facts(), replace(VLLM, context=8192))

    assert found.kv_bytes == TOKEN * 8192
    assert found.total_bytes == GIB + TOKEN * 8192
    assert "kv  1.1 GiB = 8192 tokens x 144 KiB" in found.arithmetic
    assert found.unknown == ("its buffers",)


def test_vllm_takes_a_share_of_its_device_whatever_it_loads() -> None:
    (_, device) = pools(stated("64Gi", "24Gi"))
    asked = replace(VLLM, context=8192, device_fraction=0.9)
    own = replace(asked, device_fraction=None, kv_bytes=4 * GIB)

    def taken(settings: Any) -> dict[str, int]:
        answer = estimate(facts(), settings)
        return {
            n.pool: n.bytes for n in needs(answer, settings, pools(stated("64Gi", "24Gi")), facts())
        }

    assert taken(asked) == {device.name: int(24 * GIB * 0.9)}
    assert taken(own) == {device.name: 5 * GIB}


def test_what_mlx_does_not_limit_is_named_and_in_no_sum() -> None:
    found = estimate(facts(), replace(MLX, prompt_cache_bytes=256 * MIB))

    assert found.total_bytes == GIB + 256 * MIB
    assert found.unknown == (
        "the context, which its server does not limit: 144 KiB a token",
        "its buffers",
    )


@pytest.mark.parametrize(
    "config",
    [
        CONFIG | {"model_type": "mamba2"},
        CONFIG | {"num_hidden_layers": 10**9},
        CONFIG | {"hidden_size": True, "head_dim": None},
        {"text_config": ["qwen3"]},
        [],
        None,
    ],
)
def test_a_configuration_that_says_nothing_of_use_leaves_the_context_unknown(config: Any) -> None:
    found = estimate(facts(config), replace(VLLM, context=8192))

    assert found.total_bytes == GIB
    assert found.unknown[0].startswith("the context, as its config.json says nothing")


def test_a_model_that_sees_has_its_text_in_a_part_of_the_configuration() -> None:
    nested = {"model_type": "gemma3", "text_config": CONFIG | {"model_type": "gemma3_text"}}

    assert estimate(facts(nested), replace(VLLM, context=1)).kv_bytes == TOKEN


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*CONFIG, "text_config"]), json_values))
def test_any_configuration_has_an_answer(changes: dict[str, Any]) -> None:
    for settings in (MLX, replace(VLLM, context=8192)):
        assert estimate(facts(CONFIG | changes), settings).total_bytes >= GIB


@pytest.mark.parametrize("config", [b"[" * 100_000, b"\xff", b"", b'{"model_type": 1e999}'])
def test_a_damaged_configuration_is_none(config: bytes) -> None:
    assert facts_of_files({"model.safetensors": 7}, config).architecture == ""


def test_a_folder_in_the_repository_is_weighed_and_refused_where_it_does_not_fit(
    tmp_path: Path,
) -> None:
    files: dict[str, str | bytes] = {
        "node.yaml": node("mac", hardware={"memory": "64Mi"}),
        "model.yaml": model("m", source="m/"),
        "large.yaml": service("large", "m", runtime="mlx-lm"),
        "small.yaml": service("small", "m", runtime="mlx-lm", promptCache="1Mi"),
        "m/config.json": json.dumps(CONFIG),
        "m/model.safetensors": bytes(2 * MIB),
    }
    loaded = load_folder(write_fleet(tmp_path, files))
    assert loaded.fleet is not None

    found = assign(loaded.fleet, loaded.facts)

    (held,) = found.holds
    (small,) = found.workloads
    assert "needs 258 MiB of host memory" in held.finding.message
    assert "; with promptCache: " in held.finding.message
    assert "contextSize" not in held.finding.message
    assert [need.bytes for need in small.needs] == [3 * MIB]
    said = [finding.message for finding in found.warnings if finding.ref == small.ref]
    assert "not in the checked memory: its buffers" in said


def test_a_folder_in_the_store_is_known_by_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(bytes(MIB))
    wanted = ModelFile("m", f"{folder.as_uri()}/", "mlx")
    store = ModelStore(tmp_path / "store")

    store.ensure(wanted)
    wait_for(lambda: store.lookup(wanted) is not None)
    stored = store.lookup(wanted)
    store.close()

    assert stored is not None
    found = store.facts(stored.digest)
    assert found is not None
    assert (found.weights_bytes, found.architecture, found.block_count) == (MIB, "qwen3", 36)
