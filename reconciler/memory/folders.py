"""The memory of engines that load folders of safetensors: MLX and vLLM. Pure.

Weights are the files' own sizes. Parts that cannot be predicted are named, and are in no sum.
"""

from __future__ import annotations

from dataclasses import replace

from reconciler.api.quantity import show_bytes
from reconciler.memory.facts import MemoryEstimate, MemorySettings, ModelFacts
from reconciler.memory.layers import shape

_ELEMENT_BYTES = 2  # both use 16 bits by default
# `model_type` of config.json: every layer keeps the keys and values of every token, or fewer.
_ATTENTION = """
    llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3 gemma3_text phi phi3
    phimoe olmo olmo2 olmoe starcoder2 cohere cohere2 granite granitemoe internlm2 stablelm smollm3
    glm glm4 glm4_moe exaone exaone4 nemotron gpt_oss dbrx minicpm seed_oss ernie4_5 ernie4_5_moe
"""

# What an engine adds: 16 bits for keys and values, and a copy of the weights for each process.
MLX = MemorySettings(
    engine="mlx",
    context=0,
    slots=1,
    u_batch=0,
    cache_type_k="f16",
    cache_type_v="f16",
    flash_attention=False,
    kv_unified=True,
    prompt_cache_bytes=0,
    mapped=False,
)
VLLM = replace(MLX, engine="vllm")


_VLLM_UNKNOWN: tuple[str, ...] = ("its buffers",)
_NO_CONFIG = "the context, as its config.json says nothing that is known here"


def estimate_mlx(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """The server does not limit the context, so it is in no sum."""
    token = _bytes_a_token(facts)
    context = "the context, which its server does not limit"
    unknown = (f"{context}: {show_bytes(token)} a token" if token else context, "its buffers")
    return _made(facts, unknown, prompt_cache_bytes=settings.prompt_cache_bytes)


def estimate_vllm(facts: ModelFacts, settings: MemorySettings) -> MemoryEstimate:
    """vLLM does not start if one request with the whole context does not fit beside the weights; a
    stated size of the cache is per device."""
    token = _bytes_a_token(facts)
    kv, line, unknown = 0, "", _VLLM_UNKNOWN
    if settings.kv_bytes is not None:
        kv = settings.kv_bytes * settings.devices
        line = f"kv  {show_bytes(kv)} = {settings.devices} x {show_bytes(settings.kv_bytes)} stated"
    elif token:
        kv = token * settings.context
        line = f"kv  {show_bytes(kv)} = {settings.context} tokens x {show_bytes(token)}"
    else:
        unknown = (_NO_CONFIG, *unknown)
    return _made(facts, unknown, kv_bytes=kv, line=line)


def _made(
    facts: ModelFacts,
    unknown: tuple[str, ...],
    *,
    kv_bytes: int = 0,
    prompt_cache_bytes: int = 0,
    line: str = "",
) -> MemoryEstimate:
    cache = prompt_cache_bytes
    lines = (
        f"weights  {show_bytes(facts.weights_bytes)} = the size of its files",
        line,
        f"prompt cache  {show_bytes(cache)}, the limit that it may grow to" if cache else "",
    )
    return MemoryEstimate(
        weights_bytes=facts.weights_bytes,
        kv_bytes=kv_bytes,
        state_bytes=0,
        logits_bytes=0,
        compute_bytes=0,
        overhead_bytes=0,
        prompt_cache_bytes=cache,
        exact=False,
        arithmetic=tuple(text for text in lines if text),
        unknown=unknown,
    )


def _bytes_a_token(facts: ModelFacts) -> int:
    """Keys and values of one token, 0 if the architecture is not known or a value is missing."""
    if facts.architecture not in _ATTENTION.split():
        return 0
    layers = shape(facts.architecture, facts.keys).layers
    return sum(layer.kv_heads * (layer.key + layer.value) for layer in layers) * _ELEMENT_BYTES
