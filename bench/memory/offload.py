"""Models on devices with memory of their own: what llama.cpp would allocate where, and what we
say."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.memory.files import model_file
from bench.memory.grid import PLAIN
from bench.memory.libllama import Llama, LlamaError
from bench.memory.shapes import Model, models
from reconciler.gguf.header import read_path
from reconciler.memory import MemorySettings, ModelFacts, estimate, on_devices
from reconciler.memory.estimate import read_again_bytes
from reconciler.memory.overrides import MACHINE
from tests.support.llama_server import llama_server

MIB = 2**20
_DEVICES = 2
Overrides = tuple[tuple[str, int | None], ...]
# how many devices or their shares, the share of the layers that is on them (None: all), the share
# of the layers whose experts stay on the machine, and patterns of tensors that lie elsewhere
_PLACES: tuple[tuple[int | tuple[float, ...], float | None, float, Overrides], ...] = (
    *((1, None, 0.0, ()), (1, 0.5, 0.0, ()), (1, 0.0, 0.0, ()), (2, None, 0.0, ())),
    *((2, 0.5, 0.0, ()), (1, None, 1.0, ()), (1, None, 0.5, ()), (1, 0.5, 0.75, ())),
    *((2, None, 1.0, ()), (2, None, 0.5, ())),
    *(((3, 1), None, 0.0, ()), ((1, 4.5), 0.5, 0.0, ()), ((0, 1), None, 0.0, ())),
    (1, None, 0.0, ((r"blk\.[0-3]\.|_norm|^output", None),)),
    (2, 0.5, 0.0, (("ffn_down|^token", 1), ("attn|ssm|ffn_up", None))),
)
_SETTINGS: tuple[tuple[int, dict[str, Any]], ...] = (
    (8192, {}),
    (32768, {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "slots": 4}),
    (8192, {"u_batch": 2048}),
    (4096, {"flash_attention": False}),
    (8192, {"kv_offload": False}),
    (4096, {"kv_offload": False, "flash_attention": False}),
    (16384, {"kv_offload": False, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
)


@dataclass(frozen=True, slots=True)
class Placed:
    """MiB of one pool: `pool` 0 is the machine, 1 the first device."""

    model: str
    settings: MemorySettings
    pool: int
    true: float
    said: float

    @property
    def group(self) -> str:
        pool = "a device" if self.pool else "the machine"
        if self.settings.overrides:
            return f"{pool}, tensors elsewhere by tensorOverrides"
        experts = ["experts"] if self.settings.cpu_moe_layers else []
        stays = experts if self.settings.kv_offload else [*experts, "the cache"]
        if stays:
            return f"{pool}, {' and '.join(stays)} on the machine"
        share = {None: "all", 0: "no"}.get(self.settings.gpu_layers, "half of the")
        devices = "a device" if self.settings.devices == 1 else f"{self.settings.devices} devices"
        devices += " by tensorSplit" if self.settings.tensor_split else ""
        return f"{pool}, {share} layers on {devices}"

    @property
    def error(self) -> float:
        return self.said / self.true - 1


def placed(names: Collection[str] = ()) -> Iterator[Placed]:
    llama = Llama(llama_server().parent)
    with TemporaryDirectory() as folder:
        for model in models():
            if (not names or model.name in names) and not model.pooling:
                yield from of_model(llama, Path(folder), model)


def of_model(llama: Llama, folder: Path, model: Model) -> Iterator[Placed]:
    path = model_file(llama, folder, model)
    facts = read_path(path)
    devices = [llama.device(f"GPU{i}") for i in range(_DEVICES)]
    for places, share, experts, apart in _PLACES:
        shares = places if isinstance(places, tuple) else ()
        count = places if isinstance(places, int) else len(places)
        if experts and not facts.expert_bytes:
            continue
        stay = math.ceil(experts * facts.block_count)
        layers = None if share is None else int(share * facts.block_count)
        everywhere = facts.block_count + 1 if layers is None else layers
        with llama.loaded(path, devices[:count], everywhere, stay, shares, apart) as handle:
            for context, changes in _SETTINGS:
                settings = MemorySettings(
                    context=context,
                    gpu_layers=layers,
                    devices=count,
                    cpu_moe_layers=stay,
                    tensor_split=shares,
                    overrides=tuple((p, MACHINE if d is None else f"GPU{d}") for p, d in apart),
                    mapped=False,
                    **(PLAIN | changes),
                )
                try:
                    true = llama.allocation(handle, settings, model.pooling)
                except LlamaError:
                    continue
                on = [true.pools.get(device.buffers, 0.0) for device in devices[:count]]
                machine = sum(true.pools.values()) - sum(on) + true.logits
                yield from _pools(model, facts, settings, (machine, *on))
    path.unlink()


def _pools(
    model: Model, facts: ModelFacts, settings: MemorySettings, true: tuple[float, ...]
) -> Iterator[Placed]:
    again = read_again_bytes(facts, settings)  # weights too, among what is not asked about here
    buffers = replace(estimate(facts, settings), overhead_bytes=again)
    split = on_devices(facts, settings, buffers, [1] * settings.devices)
    for pool, (taken, size) in enumerate(zip(true, (split.machine, *split.devices), strict=True)):
        if taken:
            yield Placed(model.name, settings, pool, taken, size / MIB)
