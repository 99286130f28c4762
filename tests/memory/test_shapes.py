"""What is said of the shapes of real models, to the byte.

`tests/cases/memory/shapes.txt` has a line for each, `arithmetic.txt` what people read of it. That
those numbers bound what llama.cpp allocates is held against llama.cpp itself (`test_engine.py`, and
all of them by `python -m bench.memory`); here that nobody changes one unawares.

    python -m tests.memory.test_shapes     writes them anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.memory.grid import PLAIN
from bench.memory.shapes import Model, models
from reconciler.memory import MemorySettings, ModelFacts, estimate, on_devices

CASES = Path(__file__).parent.parent / "cases/memory/shapes.txt"
ARITHMETIC = CASES.with_name("arithmetic.txt")
GIB = 2**30
SETTINGS: Mapping[str, dict[str, Any]] = {
    "plain": {"gpu_layers": 0},
    "slots": {"context": 32768, "slots": 4, "kv_unified": False, "swa_full": True, "repack": True,
              "cache_type_k": "q8_0", "cache_type_v": "q4_0", "checkpoints": 2, "gpu_layers": 0},
    "exact": {"context": 3000, "flash_attention": False, "gpu_layers": 5, "mapped": False,
              "prompt_cache_bytes": GIB},
    "two": {"devices": 2, "u_batch": 2048, "slots": 2},
    "apart": {"context": 4096, "devices": 2, "flash_attention": False},
    "texts": {"context": 1000, "embeddings": True, "repack": False, "flash_attention": False,
              "devices": 2, "gpu_layers": 9},
    "off": {"context": 4096, "devices": 2, "gpu_layers": 0, "flash_attention": False},
    "copied": {"devices": 1, "cache_type_k": "q8_0", "cache_type_v": "q4_0"},
}  # fmt: skip


def shapes() -> Iterator[Model]:
    """The first of each architecture."""
    seen = set[str]()
    for model in models():
        if model.architecture not in seen:
            seen.add(model.architecture)
            yield model


def facts_of(model: Model) -> ModelFacts:
    """With weights of a size that the shape does not tell: a byte more in each layer than in the
    one before, so that it can be seen which layers are where."""
    keys = {
        key.removeprefix("!") if key[0] == "!" else f"{model.architecture}.{key}": value
        for key, value in model.keys.items()
    }
    count, vocabulary = int(str(model.keys["block_count"])), int(str(model.keys["vocab_size"]))
    blocks = tuple(2**24 + number for number in range(count))
    head = 3 * vocabulary if "output.weight" in model.optional else 0
    lookup = 5 * vocabulary if model.architecture == "gemma3n" else 0
    return ModelFacts(
        architecture=model.architecture,
        file_bytes=GIB,
        weights_bytes=sum(blocks) + 7 * vocabulary + head + lookup,
        repackable_bytes=2**20,
        tensor_count=9 * count,
        vocabulary=vocabulary,
        keys=keys,
        embedding_bytes=7 * vocabulary,
        lookup_bytes=lookup,
        head_bytes=head,
        block_bytes=blocks,
        largest_bytes=2**22,
    )


def said(model: Model, name: str) -> str:
    settings = MemorySettings(**{"context": 8192, **PLAIN, **SETTINGS[name]})
    facts = facts_of(model)
    found = estimate(facts, settings)
    sizes = {
        "kv": found.kv_bytes,
        "state": found.state_bytes,
        "logits": found.logits_bytes,
        "compute": found.compute_bytes,
        "beside": found.overhead_bytes,
    }
    words = [f"{model.name:20} {name:5}", *(f"{key} {size}" for key, size in sizes.items() if size)]
    if settings.gpu_layers != 0 or name == "off":
        split = on_devices(facts, settings, found, [2 * GIB, GIB][: settings.devices])
        words += [f"machine {split.machine} of it mapped {split.mapped} devices", *split.devices]
    return " ".join(map(str, words if found.exact else [*words, "at most"]))


def arithmetic() -> Iterator[str]:
    """In words, of each architecture with one of the settings, in turn."""
    for number, model in enumerate(shapes()):
        name = list(SETTINGS)[number % len(SETTINGS)]
        found = estimate(
            facts_of(model), MemorySettings(**{"context": 8192, **PLAIN, **SETTINGS[name]})
        )
        yield f"{model.name} {name}"
        yield from (f"    {line}" for line in found.arithmetic)


def main() -> None:
    CASES.write_text("".join(f"{said(m, name)}\n" for m in shapes() for name in SETTINGS))
    ARITHMETIC.write_text("".join(f"{line}\n" for line in arithmetic()))


def test_what_is_said_of_a_real_models_shape_is_what_was_held_against_llama_cpp() -> None:
    lines = [said(model, name) for model in shapes() for name in SETTINGS]

    assert lines == CASES.read_text().splitlines()


def test_the_arithmetic_of_a_real_models_shape_is_said_as_it_was() -> None:
    assert list(arithmetic()) == ARITHMETIC.read_text().splitlines()


if __name__ == "__main__":
    main()
