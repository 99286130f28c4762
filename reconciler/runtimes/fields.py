"""What each field of a service is for: what its process is rendered from, what only a target acts
on, and the rest."""

from __future__ import annotations

# Every field of InferenceServiceSpec is in exactly one of these (a test holds that): what the
# process is rendered from, what only the target acts on, what Workload carries in a field of its
# own, and what decides where or whether to run, or acts on Kubernetes only.
MODEL_FIELDS = (
    "contextSize",
    "parallelSlots",
    "cacheTypeK",
    "cacheTypeV",
    "gpuLayers",
    "batchSize",
    "uBatchSize",
    "extraArgs",
)
SERVICE_FIELDS = (
    "flashAttention",
    "promptCache",
    "jinja",
    "sleepIdle",
    "env",
    "devices",
    "runtimeOptions",
    "router",
)
LIFECYCLE_FIELDS = (
    "rollout.drainTimeout",
    "rollout.handover",
    "rollout.onUpgrade",
    "memory.mode",
)
# These only say how to measure it, and are left out where they are not stated.
BENCHMARK_FIELDS = (
    "benchmark.warmupIterations",
    "benchmark.iterations",
    "benchmark.minDuration",
)
# What clients ask it for: left out where it is not stated, and a change of it restarts nothing.
CLIENT_FIELDS = ("chat",)
CARRIED_FIELDS = ("runtime", "modelRef", "models", "suspend", "endpoint.port")
ELSEWHERE_FIELDS = (
    "replicas",
    "placement",
    "memory.budget",
    "memory.fraction",
    "endpoint.type",
    "resources",
    "autoscaling",
    "image",
    "imagePullSecrets",
    "priority",
    "benchmark.enabled",
    "benchmark.everyClass",
)
# In a cluster these count as well, by the names that plans show: what pods are made from beside
# what their processes are, and what changes without a new pod.
POD_FIELDS = ("resources.requests", "resources.limits", "imagePullSecrets", "priority")
SCALE_FIELDS = ("replicas", "endpoint.type", "autoscaling")
PROCESS_FIELDS = frozenset(MODEL_FIELDS + SERVICE_FIELDS)
