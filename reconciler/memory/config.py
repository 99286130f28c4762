"""Memory facts of a model that is not GGUF, from its files: sizes, and config.json. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import orjson

from reconciler.memory.facts import ModelFacts

CONFIG = "config.json"
LARGEST_CONFIG_BYTES = 2**20
_MOST_LAYERS = 4096
# The engines' own order: only the files of the first pattern that matches at the top are loaded.
_WEIGHTS = ("model*.safetensors", "*.safetensors")
# field of config.json -> key as in a GGUF header, below the architecture's name
_KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}


def facts_of_files(sizes: Mapping[str, int], config: bytes | None) -> ModelFacts:
    """Facts from the sizes of a model's files by name, and its config.json if there is one. Missing
    or malformed values are left out. Never raises."""
    settings = _mapping(_parsed(config))
    settings |= _mapping(settings.get("text_config"))  # of a multimodal model
    architecture = settings.get("model_type")
    name = architecture if isinstance(architecture, str) else ""
    keys = {
        f"{name}.{key}": n for field, key in _KEYS.items() if (n := _count(settings.get(field)))
    }
    if head := _count(settings.get("head_dim")):
        keys |= {f"{name}.attention.key_length": head, f"{name}.attention.value_length": head}
    if keys.get(f"{name}.block_count", 0) > _MOST_LAYERS:
        keys = {}
    weights = next((total for pattern in _WEIGHTS if (total := _matching(sizes, pattern))), {})
    return ModelFacts(
        architecture=name,
        file_bytes=sum(sizes.values()),
        weights_bytes=sum(weights.values()),
        repackable_bytes=0,
        tensor_count=0,
        vocabulary=_count(settings.get("vocab_size")) or 0,
        keys=MappingProxyType(keys),
    )


def _parsed(config: bytes | None) -> object:
    try:
        return None if config is None else orjson.loads(config)
    except orjson.JSONDecodeError:
        return None


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value < 2**31 else None


def _matching(sizes: Mapping[str, int], pattern: str) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if fnmatchcase(name, pattern)}
