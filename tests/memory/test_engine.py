"""What llama.cpp itself logs that it allocates is what the estimate says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bench.memory.comparison import of_model
from bench.memory.libllama import Llama
from bench.memory.live import peak
from bench.memory.offload import of_model as on_devices_of
from bench.memory.shapes import models
from reconciler.fleet.command import Command
from reconciler.gguf.header import read_path
from reconciler.memory import MemorySettings, ModelFacts, estimate, on_devices
from reconciler.runtimes.llama_server import RUNTIME as LLAMA
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import Server, render, service, workload
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.real_models import GEMMA, model_path

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
CASES: list[dict[str, Any]] = [
    {},
    {"slots": 3, "kv_unified": False},
    {"slots": 3, "u_batch": 128},
    {"cache_type_k": "q8_0", "cache_type_v": "q4_0"},
    {"flash_attention": False},
]


@pytest.mark.e2e
@pytest.mark.parametrize("changes", CASES, ids=str)
def test_the_real_server_allocates_what_the_estimate_says(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "m.gguf", layers=3, heads=2, kv_heads=1, embedding=128)
    plain: dict[str, Any] = {
        "slots": 1,
        "u_batch": 512,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "flash_attention": True,
        "kv_unified": True,
        "prompt_cache_bytes": 0,
    }
    told = MemorySettings(context=5000, **(plain | changes))
    port = own_port()
    argv = (
        *(str(llama_server()), "-m", str(model), "--port", str(port), "-c", "5000"),
        *("-np", str(told.slots), "-kvu" if told.kv_unified else "-no-kvu"),
        *("-ub", str(told.u_batch), "-ctk", told.cache_type_k, "-ctv", told.cache_type_v),
        *("-fa", "on" if told.flash_attention else "off", "--fit", "off", "-t", "1", "-lv", "4"),
    )

    with Server(Command(argv), port, tmp_path / "run") as server:
        log = server.wait_listening()
    found = estimate(read_path(model), told)

    assert found.exact
    assert logged(log, "KV buffer size") == pytest.approx(found.kv_bytes / MIB, abs=0.01)
    assert logged(log, "output buffer size") == pytest.approx(found.logits_bytes / MIB, abs=0.01)
    compute = logged(log, "compute buffer size")
    assert compute <= found.compute_bytes / MIB < compute + 3


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("stated", "layers"), [({"moeCPULayers": 2}, 2), ({"moeCPUOffload": True}, 3)], ids=str
)
def test_the_real_server_leaves_the_experts_to_the_machine_that_are_counted_there(
    stated: dict[str, Any], layers: int, tmp_path: Path
) -> None:
    model = tiny_llama(tmp_path / "m.gguf", layers=3, experts=4)
    port = own_port()
    command = render(
        service(**stated, noKvOffload=True),
        NodeFacts(
            binary=(str(llama_server()),),
            port=str(port),
            threads="1",
            directory=str(tmp_path),
            model_paths={"tiny": str(model)},
        ),
    )

    with Server(Command((*command.argv, "-lv", "5")), port, tmp_path / "run") as server:
        log = server.wait_listening()

    assert set(re.findall(r"tensor (\S+) \(.* buffer type overridden to CPU", log)) == {
        f"blk.{layer}.ffn_{part}_exps.weight"
        for layer in range(layers)
        for part in ("gate", "up", "down")
    }


@pytest.mark.e2e
def test_the_real_server_moves_the_tensors_that_are_counted_as_moved(tmp_path: Path) -> None:
    overrides = [r"blk\.[02]\.(attn_|ffn_)(q|down)=CPU,^output_norm=CPU", r"n_(?:k|v)\.w+=CPU"]
    model = tiny_llama(tmp_path / "m.gguf", layers=3, experts=4)
    wanted = service(tensorOverrides=overrides, moeCPULayers=1)
    port = own_port()
    command = render(
        wanted,
        NodeFacts(
            binary=(str(llama_server()),),
            port=str(port),
            threads="1",
            directory=str(tmp_path),
            model_paths={"tiny": str(model)},
        ),
    )
    facts, made = read_path(model), workload(wanted)
    settings = LLAMA.memory_settings(made, made.models[0])

    with Server(Command((*command.argv, "-lv", "5")), port, tmp_path / "run") as server:
        log = server.wait_listening()

    moved = re.findall(r"tensor (\S+) \(.* buffer type overridden to CPU", log)
    taken = sum(_size(facts, name) for name in moved)
    devices = {}
    for told in (settings, replace(settings, overrides=(), cpu_moe_layers=0)):
        split = on_devices(facts, told, estimate(facts, told), [1])
        devices[told.overrides] = split.mapped - facts.embedding_bytes
    assert len(moved) > 8
    assert taken
    assert devices == {settings.overrides: taken, (): 0}


def _size(facts: ModelFacts, name: str) -> int:
    others = dict(facts.other_tensors)
    if name in others:
        return others[name]
    _, layer, kind = name.split(".", 2)
    runs = dict(facts.layer_tensors)[kind]
    return next(size for first, count, size in runs if first <= int(layer) < first + count)


# Models of which each is fullest at another step, the last in no table of ours; `python -m
# bench.memory` has them all.
SHAPES = (
    *("gemma-3-270m", "falcon-7b", "mixtral-8x7b", "deepseek-v3.2"),
    *("rwkv7-1.5b", "bge-reranker-v2-m3", "minimax-m3"),
)


@pytest.mark.e2e
@pytest.mark.parametrize("name", SHAPES)
def test_memory_is_never_said_too_low_for_the_shapes_of_real_models(
    name: str, tmp_path: Path
) -> None:
    (model,) = (model for model in models() if model.name == name)

    found = list(of_model(Llama(llama_server().parent), tmp_path, model))

    assert found
    for one in found:
        assert -0.01 < one.error < (0.1 if one.group in ("generation", "experts") else 0.2), one
        bound = 0.0 if one.said.exact else 0.01 * one.true.kv
        assert -0.05 < one.said.kv_bytes / MIB - one.true.kv < bound + 0.05, one
        assert one.said.state_bytes / MIB == pytest.approx(one.true.state, abs=0.05), one
        assert one.said.logits_bytes / MIB == pytest.approx(one.true.logits, abs=0.05), one


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name", ["llama-3.2-1b", "mixtral-8x7b", "gemma-3-270m", "gemma-3n-e2b", "lfm2-1.2b"]
)
def test_a_device_and_the_machine_beside_it_take_no_more_than_was_said(
    name: str, tmp_path: Path
) -> None:
    (model,) = (model for model in models() if model.name == name)

    found = list(on_devices_of(Llama(llama_server().parent), tmp_path, model))

    assert {one.pool for one in found} == {0, 1, 2}
    for one in found:
        assert one.error > -0.01, one
        if one.settings.gpu_layers is None and one.settings.devices == 1:
            apart = one.settings.overrides or not one.settings.kv_offload
            assert one.error < 0.1 or apart, one
        if one.settings.cpu_moe_layers and one.pool == 0:
            assert one.error < 0.001, one
    assert any(one.settings.overrides for one in found)
    assert any(one.settings.cpu_moe_layers for one in found) == ("expert_count" in model.keys)


@pytest.mark.e2e
def test_a_server_that_embeds_a_text_as_long_as_its_context_takes_what_was_said() -> None:
    spec = {
        "contextSize": 512,
        "batchSize": 512,
        "embeddings": True,
        "pooling": "mean",
    }

    found = peak(model_path(GEMMA), spec)

    assert found.taken > 1300  # 512 rows of logits, and as many again while they are computed
    assert -0.02 < found.error < 0.05


def logged(log: str, what: str) -> float:
    """The sum of all buffers of that kind, MiB."""
    sizes = re.findall(what + r" =\s+([\d.]+) MiB", log)
    assert sizes, log
    return sum(float(size) for size in sizes)
