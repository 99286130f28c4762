"""What becomes of the fields of FlexInfer's ModelDeployment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.foreign.field import (
    AMOUNT,
    ANY,
    BOOLEAN,
    COUNT,
    TEXT,
    TEXTS,
    ForeignField,
    Native,
    Shape,
    alias,
    answered,
    converted,
    lost,
    one_of,
)

IDLE = "spec.idleTimeoutSeconds"
REQUIRED = ("backend", "model")
_ARGS = "spec.extraArgs"
_CPP, _VLLM = "spec.llamacpp.", "spec.vllm."
_ALL_LAYERS = 999
_AMOUNTS: Shape = {"type": "object", "additionalProperties": AMOUNT}
_WORDS: Shape = {"type": "object", "additionalProperties": TEXT}
_DEVICES = ("nvidia.com/gpu", "amd.com/gpu")
_GROUPED = "models share devices where their nodes' memory holds them, and a llamacpp-router takes"
_GATEWAY = "clients and gateways ask by the name of the Model at the URL that status prints"
_NO_RUNTIME = "it is for another backend"
_PLUGIN = "the device plugin says which devices a pod gets"
_UNCOUNTED = "memory is worked out for weights on devices"


def _limits(value: Mapping[str, Any]) -> Native:
    """Devices are asked for by their number, whatever their vendor's resource is called."""
    counts = [value[name] for name in _DEVICES if name in value]
    rest = {name: amount for name, amount in value.items() if name not in _DEVICES}
    devices = {"spec.devices": int(counts[0])} if counts and str(counts[0]).isdigit() else {}
    return {**devices, **({"spec.resources.limits": rest} if rest else {})}


def _requests(value: Mapping[str, Any]) -> Native:
    """What is asked for of devices are their limits, too."""
    rest = {name: amount for name, amount in value.items() if name not in _DEVICES}
    return {"spec.resources.requests": rest} if rest else {}


def _share(value: str) -> Native:
    """A number in a text; any other is refused by our field."""
    is_number = value.replace(".", "", 1).isdigit()
    return {"spec.runtimeOptions.gpuMemoryUtilization": float(value) if is_number else value}


def _flag(path: str, flag: str, shape: Shape = TEXT) -> ForeignField:
    """What the engine takes as an argument."""
    return converted(path, shape, f"{_ARGS}: {flag}", lambda value: {_ARGS: (flag, str(value))})


def _switch(path: str, flag: str) -> ForeignField:
    """The same for an argument without a value."""
    return converted(
        path, BOOLEAN, f"{_ARGS}: {flag}", lambda value: {_ARGS: (flag,)} if value else {}
    )


FIELDS: tuple[ForeignField, ...] = (
    converted(
        "spec.backend",
        TEXT,
        "spec.runtime of an InferenceService: llamacpp, llama.cpp, vllm, and ollama as the node's"
        " own; of another one nothing is made",
        lambda _: {},
    ),
    converted(
        "spec.model",
        TEXT,
        "spec.source of its Model: an address such as hf://ORG/REPO/FILE, with vllm also ORG/REPO",
        lambda _: {},
    ),
    alias("spec.replicas", COUNT, "spec.replicas"),
    answered(
        "spec.minReplicas",
        COUNT,
        "its pod stays, and its model leaves memory after idleTimeoutSeconds where this is 0",
        0,
    ),
    converted(IDLE, COUNT, "spec.sleepIdle", lambda v: {"spec.sleepIdle": f"{v}s"} if v else {}),
    answered(
        "spec.coldStartTimeoutSeconds",
        COUNT,
        "a request waits as long as its model takes to load",
        60,
    ),
    alias("spec.nodeSelector", _WORDS, "spec.nodeSelector"),
    converted(
        "spec.resources.requests", _AMOUNTS, "spec.resources.requests, but for devices", _requests
    ),
    converted(
        "spec.resources.limits",
        _AMOUNTS,
        "spec.resources.limits; a number of devices: spec.devices",
        _limits,
    ),
    lost(
        "spec.resources.claims",
        {"type": "array", "items": ANY},
        "write resourceClaims in an InferenceService",
        [],
    ),
    alias("spec.benchmark.warmupIterations", COUNT, "spec.benchmark.warmupIterations"),
    alias("spec.benchmark.iterations", COUNT, "spec.benchmark.iterations"),
    alias("spec.benchmark.minDuration", TEXT, "spec.benchmark.minDuration"),
    answered("spec.benchmark.batchSize", COUNT, "every run is of 128 tokens", 128),
    answered(
        "spec.modelCacheRef", TEXT, "a node keeps what it fetched, and a pool as its cache says"
    ),
    answered("spec.vramEstimateMB", COUNT, "it is worked out from the model's header"),
    lost("spec.gpuGroupRef", TEXT, f"{_GROUPED} those in turn that do not fit together"),
    lost("spec.priority", COUNT, "priority of an InferenceService is a word: high, low, ...", 100),
    answered("spec.litellm.enabled", BOOLEAN, _GATEWAY),
    answered("spec.litellm.servedModelName", TEXT, _GATEWAY),
    lost("spec.litellm.aliases", TEXTS, _GATEWAY, []),
    lost("spec.litellm.copilotAlias", TEXT, _GATEWAY),
    lost("spec.serviceLabels", TEXTS, "nothing routes by them; podLabels are for selectors", []),
    # llama.cpp
    alias(f"{_CPP}contextSize", COUNT, "spec.contextSize"),
    converted(
        f"{_CPP}nGPULayers",
        COUNT,
        f"spec.gpuLayers; {_ALL_LAYERS} and more: all, as where it is unset",
        lambda value: {"spec.gpuLayers": value} if value < _ALL_LAYERS else {},
    ),
    alias(f"{_CPP}batchSize", COUNT, "spec.batchSize"),
    alias(f"{_CPP}flashAttention", BOOLEAN, "spec.flashAttention"),
    alias(f"{_CPP}mainGPU", COUNT, "spec.mainGPU"),
    answered(f"{_CPP}threads", COUNT, "as many as the cores that it has"),
    _flag(f"{_CPP}ropeFreqBase", "--rope-freq-base"),
    _flag(f"{_CPP}ropeFreqScale", "--rope-freq-scale"),
    # vLLM
    alias(f"{_VLLM}tensorParallelSize", COUNT, "spec.devices"),
    alias(f"{_VLLM}maxModelLen", COUNT, "spec.contextSize"),
    alias(f"{_VLLM}maxNumSeqs", COUNT, "spec.parallelSlots"),
    converted(
        f"{_VLLM}gpuMemoryUtilization", TEXT, "spec.runtimeOptions.gpuMemoryUtilization", _share
    ),
    _flag(f"{_VLLM}dtype", "--dtype", one_of("auto", "float16", "bfloat16", "float32")),
    _flag(f"{_VLLM}kvCacheDtype", "--kv-cache-dtype"),
    converted(
        f"{_VLLM}quantization",
        TEXT,
        f"{_ARGS}: --quantization",
        lambda value: {_ARGS: ("--quantization", value)} if value not in ("", "None") else {},
    ),
    _flag(f"{_VLLM}attentionBackend", "--attention-backend"),
    _switch(f"{_VLLM}enablePrefixCaching", "--enable-prefix-caching"),
    _switch(f"{_VLLM}enableChunkedPrefill", "--enable-chunked-prefill"),
    _switch(f"{_VLLM}enforceEager", "--enforce-eager"),
    lost(f"{_VLLM}trustRemoteCode", BOOLEAN, "it runs programs out of the model's folder", False),
    lost(f"{_VLLM}blockSize", COUNT, "the engine chooses it"),
    lost(f"{_VLLM}calculateKvScales", BOOLEAN, "scales are those of the model's files", False),
    lost(f"{_VLLM}cpuOffloadGB", COUNT, _UNCOUNTED, 0),
    lost(f"{_VLLM}swapSpace", COUNT, _UNCOUNTED, 0),
    lost(f"{_VLLM}ropeScaling.type", TEXT, "the model's own is used"),
    lost(f"{_VLLM}ropeScaling.factor", TEXT, "the model's own is used"),
    lost(f"{_VLLM}hipVisibleDevices", TEXT, _PLUGIN),
    lost(f"{_VLLM}rocrVisibleDevices", TEXT, _PLUGIN),
    lost(f"{_VLLM}gpuDeviceOrdinal", TEXT, _PLUGIN),
    # Backends that are no runtimes here: of these nothing is made
    answered("spec.mlcllm", ANY, _NO_RUNTIME, {}),
    answered("spec.comfyui", ANY, _NO_RUNTIME, {}),
    answered("spec.vllmOmni", ANY, _NO_RUNTIME, {}),
)
