"""The true shapes of real models: the keys of their headers that sizes depend on.

A line of shapes.txt: name, architecture, sizes, other keys (`key=value`; `8*0,4` is a list, and a
key with `!` is not the architecture's), the tensors that it has of those that the architecture
leaves open (`+name`), and `@pooling` of a model that is made for embeddings or ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Value = int | float | bool | tuple[int, ...]

_SIZES = (
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
)
_EPSILONS: Mapping[str, Value] = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-5,
}


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    architecture: str
    keys: Mapping[str, Value]
    optional: tuple[str, ...]
    pooling: str | None


def models() -> tuple[Model, ...]:
    text = Path(__file__).with_name("shapes.txt").read_text()
    return tuple(_model(line.split()) for line in text.splitlines())


def _model(words: list[str]) -> Model:
    name, architecture, *rest = words
    sizes, rest = rest[: len(_SIZES)], rest[len(_SIZES) :]
    stated = dict(word.split("=") for word in rest if "=" in word)
    keys = dict(zip(_SIZES, sizes, strict=True)) | stated
    return Model(
        name,
        architecture,
        {**_EPSILONS, **{key: _value(text) for key, text in keys.items()}},
        tuple(word[1:] for word in rest if word[0] == "+"),
        next((word[1:] for word in rest if word[0] == "@"), None),
    )


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    if "," not in text:
        return float(text) if "." in text or "e" in text else int(text)
    runs = [run.split("*") for run in text.split(",")]
    return tuple(int(run[-1]) for run in runs for _ in range(int(run[0]) if run[1:] else 1))
