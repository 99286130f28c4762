"""One model with one setting: what llama.cpp would allocate, and what we say."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.memory.files import model_file
from bench.memory.grid import settings
from bench.memory.libllama import Allocation, Llama, LlamaError
from bench.memory.shapes import Model, models
from reconciler.gguf.header import read_path
from reconciler.memory import MemoryEstimate, MemorySettings, estimate
from tests.support.llama_server import llama_server

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Compared:
    """MiB. Both totals are of the buffers: weights, cache, state, outputs, compute."""

    model: str
    group: str
    settings: MemorySettings
    true: Allocation
    said: MemoryEstimate

    @property
    def true_total(self) -> float:
        return self.said.weights_bytes / MIB + self.true.total

    @property
    def said_total(self) -> float:
        own = self.said
        return (own.total_bytes - own.overhead_bytes - own.prompt_cache_bytes) / MIB

    @property
    def error(self) -> float:
        """Of the total; below 0 is too low."""
        return self.said_total / self.true_total - 1


def compared(names: Collection[str] = ()) -> Iterator[Compared]:
    """All models, or those named. Settings that llama.cpp refuses for a model are left out."""
    llama = Llama(llama_server().parent)
    with tempfile.TemporaryDirectory() as folder:
        for model in models():
            if not names or model.name in names:
                yield from of_model(llama, Path(folder), model)


def of_model(llama: Llama, folder: Path, model: Model) -> Iterator[Compared]:
    path = model_file(llama, folder, model)
    facts = read_path(path)
    with llama.loaded(path) as handle:
        for group, told in settings(model):
            try:
                true = llama.allocation(handle, told, model.pooling)
            except LlamaError:  # a quantised cache for heads of 80 numbers
                continue
            yield Compared(model.name, group, told, true, estimate(facts, told))
    path.unlink()
