"""What becomes of LLMKube's fields of an InferenceService. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.foreign.field import (
    AMOUNT,
    ANY,
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    ForeignField,
    Native,
    alias,
    answered,
    converted,
    lost,
    one_of,
)

_ARGS = "spec.extraArgs"
_CUSTOM_CACHE = "it is a fork's own type, and the memory of it is not known; f16 is used"
_ALERTS = "the chart has alerts for every service (docs/metrics.md)"
_OMLX = "oMLX is no runtime here"
_KARPENTER = "karpenter.sh/do-not-disrupt"
_POD_WAITS = "a pod that waits finishes what it answers, and gets no new requests"
_RESTARTS = "nothing restarts by its age"
_TOKEN = "name the Secret in sourceSecretRef of the Model"  # noqa: S105  # a text
_VLLM = "spec.vllmConfig."


def _flag(path: str, flag: str, shape: Mapping[str, object] = TEXT) -> ForeignField:
    """What the engine takes as an argument."""
    return converted(path, shape, f"{_ARGS}: {flag}", lambda value: {_ARGS: (flag, str(value))})


def _switch(path: str, flag: str, off: str = "") -> ForeignField:
    """The same for an argument without a value; `off` is the one that denies it."""
    return converted(
        path,
        BOOLEAN,
        f"{_ARGS}: {flag}",
        lambda value: {_ARGS: (flag,)} if value else {_ARGS: (off,)} if off else {},
    )


def _gpus(value: int) -> Native:
    return {"spec.devices": value} if value else {"spec.gpuLayers": 0}


def _mode(value: str) -> Native:
    name = {"embedding": "embeddings", "rerank": "reranking"}.get(value)
    return {f"spec.runtimeOptions.{name}": True} if name else {}


FIELDS: tuple[ForeignField, ...] = (
    # Resources of the pod
    alias("spec.resources.cpu", AMOUNT, "spec.resources.requests.cpu"),
    alias("spec.resources.hostMemory", AMOUNT, "spec.resources.requests.memory"),
    alias(
        "spec.resources.memory",
        AMOUNT,
        "spec.resources.requests.memory",
        behind=("spec.resources.hostMemory",),
    ),
    alias(
        "spec.resources.ephemeralStorage",
        AMOUNT,
        "spec.resources.requests.ephemeral-storage",
        "spec.resources.limits.ephemeral-storage",
    ),
    converted("spec.resources.gpu", COUNT, "spec.devices; 0: spec.gpuLayers 0", _gpus),
    answered(
        "spec.resources.gpuMemory",
        AMOUNT,
        "LLMKube does nothing with it either; what a device has is its FleetNode's",
    ),
    answered(
        "spec.resources.gpuSharing.mode",
        one_of("exclusive", "shared", "partitioned"),
        "the pool's device plugin has pods share, and its deviceReplicas says so to plans",
        "exclusive",
        "partitioned",
    ),
    converted(
        "spec.resources.gpuSharing.profile",
        TEXT,
        "spec.resources.limits: nvidia.com/mig-PROFILE 1",
        lambda value: {"spec.resources.limits": {f"nvidia.com/mig-{value}": 1}} if value else {},
    ),
    answered(
        "spec.resources.gpuSharing.memoryLimitGiB",
        COUNT,
        "what it takes is worked out from the header, and nothing enforced this figure",
    ),
    # Where clients reach it
    answered(
        "spec.endpoint.path",
        TEXT,
        "clients reach every path of the engine, and status prints the URL",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/rerank",
    ),
    lost(
        "spec.endpoint.gateway.enabled",
        BOOLEAN,
        "httpRoute says which Gateway leads to it",
        False,
    ),
    lost("spec.endpoint.gateway.gatewayRef.name", TEXT, "write it in httpRoute.parentRefs"),
    lost("spec.endpoint.gateway.gatewayRef.namespace", TEXT, "write it in httpRoute.parentRefs"),
    answered("spec.endpoint.gateway.modelName", TEXT, "clients ask by the name of the Model"),
    answered("spec.bindAddress", TEXT, "pods listen on all addresses", "::", "0.0.0.0"),  # noqa: S104
    converted(
        "spec.mode",
        one_of("chat", "embedding", "rerank"),
        "spec.runtimeOptions: embeddings or reranking",
        _mode,
    ),
    # What replaces and protects it
    converted(
        "spec.rolloutPolicy.waitForIdle",
        BOOLEAN,
        f"spec.rollout.drainTimeout 300s; {_POD_WAITS}",
        lambda value: {"spec.rollout.drainTimeout": "300s"} if value else {},
        behind=("spec.rolloutPolicy.idleTimeoutSeconds",),
    ),
    converted(
        "spec.rolloutPolicy.idleTimeoutSeconds",
        COUNT,
        f"spec.rollout.drainTimeout; {_POD_WAITS}",
        lambda value: {"spec.rollout.drainTimeout": f"{value}s"},
    ),
    answered(
        "spec.rolloutPolicy.force",
        BOOLEAN,
        "when rollout.drainTimeout is over, what is left is cut",
        False,
    ),
    answered("spec.revisionHistoryLimit", COUNT, "the last three are kept"),
    lost("spec.maxPodLifetimeSeconds", COUNT, _RESTARTS, 0),
    lost("spec.maxPodLifetimeIdleTimeoutSeconds", COUNT, _RESTARTS, 0),
    lost(
        "spec.disruption.protectStartup",
        BOOLEAN,
        "podDisruptionBudget and protectAlways hold for all of a pod's life",
        True,
        False,
    ),
    converted(
        "spec.disruption.protectAlways",
        BOOLEAN,
        f"spec.podAnnotations: {_KARPENTER}",
        lambda value: {"spec.podAnnotations": {_KARPENTER: "true"}} if value else {},
    ),
    lost("spec.evictionProtection", BOOLEAN, "priority says who comes first", False),
    answered("spec.slo.name", TEXT, _ALERTS),
    answered("spec.slo.objective", TEXT, _ALERTS),
    answered("spec.slo.window", TEXT, _ALERTS),
    answered("spec.slo.indicator", one_of("availability", "latency"), _ALERTS),
    answered("spec.slo.latencyThreshold", TEXT, _ALERTS),
    # Where its models are
    answered(
        "spec.skipModelInit",
        BOOLEAN,
        "the model is fetched and verified before its engine starts; one that the image of runtime"
        " custom brings has format: custom, and one on a volume source: pvc://CLAIM/PATH",
        False,
    ),
    # llama.cpp
    _flag("spec.reasoningBudget", "--reasoning-budget", INTEGER),
    _flag("spec.reasoningBudgetMessage", "--reasoning-budget-message"),
    _flag("spec.ropeScaling.type", "--rope-scaling", one_of("linear", "yarn", "longrope")),
    _flag("spec.ropeScaling.factor", "--rope-scale"),
    _flag("spec.ropeScaling.originalContext", "--yarn-orig-ctx", COUNT),
    answered("spec.noWarmup", BOOLEAN, "what is ready has been warmed up", False),
    lost("spec.cacheTypeCustomK", TEXT, _CUSTOM_CACHE, ""),
    lost("spec.cacheTypeCustomV", TEXT, _CUSTOM_CACHE, ""),
    lost("spec.metadataOverrides", TEXTS, "the file's header is what memory is worked out by", []),
    # oMLX
    lost("spec.turboQuantBits", INTEGER, _OMLX),
    lost("spec.pagedSSDCacheDir", TEXT, _OMLX),
    lost("spec.pagedSSDCacheMaxSize", TEXT, _OMLX),
    lost("spec.hotCacheMaxSize", TEXT, _OMLX),
    # vLLM
    alias(f"{_VLLM}tensorParallelSize", COUNT, "spec.devices"),
    alias(f"{_VLLM}maxModelLen", COUNT, "spec.contextSize"),
    alias(f"{_VLLM}gpuMemoryUtilization", NUMBER, "spec.runtimeOptions.gpuMemoryUtilization"),
    _flag(f"{_VLLM}quantization", "--quantization"),
    _flag(f"{_VLLM}dtype", "--dtype", one_of("auto", "float16", "bfloat16")),
    _flag(f"{_VLLM}kvCacheDtype", "--kv-cache-dtype", one_of("auto", "fp8_e5m2", "fp8_e4m3")),
    lost(f"{_VLLM}kvCacheCustomDtype", TEXT, _CUSTOM_CACHE, ""),
    _switch(f"{_VLLM}enablePrefixCaching", "--enable-prefix-caching", "--no-enable-prefix-caching"),
    _switch(f"{_VLLM}enableChunkedPrefill", "--enable-chunked-prefill"),
    _switch(f"{_VLLM}enableExpertParallel", "--enable-expert-parallel"),
    _flag(f"{_VLLM}maxNumBatchedTokens", "--max-num-batched-tokens", COUNT),
    _flag(f"{_VLLM}attentionBackend", "--attention-backend"),
    lost(f"{_VLLM}cpuOffloadGB", COUNT, "memory is worked out for weights on devices", 0),
    lost(f"{_VLLM}speculative.enabled", BOOLEAN, "it answers the same without", False),
    lost(f"{_VLLM}speculative.model", TEXT, "no draft model is loaded"),
    answered(f"{_VLLM}speculative.numSpeculativeTokens", COUNT, "nothing is drafted"),
    lost(f"{_VLLM}hfTokenSecretRef", ANY, _TOKEN),
    # Engines that are no runtimes here: their enum is refused, so that these have no effect
    answered("spec.tgiConfig", ANY, "TGI is no runtime here", {}),
    answered("spec.sglangConfig", ANY, "SGLang is no runtime here", {}),
    answered("spec.personaPlexConfig", ANY, "PersonaPlex is no runtime here", {}),
)
