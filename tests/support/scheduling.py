"""Nodes, pods and Deployments as a scheduler extender sees them."""

from __future__ import annotations

import json
import time
from typing import Any

from reconciler.api.benchmark import BenchmarkKey, BenchmarkResult, DeviceClass, Speeds
from reconciler.api.benchmark_settings import settings_digest
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels
from reconciler.kube.objects import INPUTS_ANNOTATION, NEEDS_ANNOTATION

GIB = 2**30
LABELS = {
    "app.kubernetes.io/managed-by": "fleet-reconciler",
    "app.kubernetes.io/component": "server",
}
SHA = "ab" * 32
GPU = "nvidia.com/gpu"


def node(
    name: str, labels: NodeLabels | None = None, cost: float | None = None, gpus: int = 1
) -> dict[str, Any]:
    said = (labels or NodeLabels()).labels()
    notes = {} if cost is None else {f"{DEFAULT_PREFIX}cost-per-hour": str(cost)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": said, "annotations": notes},
        "status": {"allocatable": {"cpu": "8", GPU: str(gpus)}},
    }


def pod(
    service: str | None = "chat", namespace: str = "default", gpus: int = 1, **spec: Any
) -> dict[str, Any]:
    """Of a service; None: of somebody else."""
    labels = {} if service is None else _labels(service)
    container = {
        "name": "engine",
        "image": "engine.test/engine",
        "resources": {"limits": {GPU: str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{service}-1", "namespace": namespace, "labels": labels},
        "spec": {"containers": [container], **spec},
    }


def deployment(
    service: str = "chat",
    namespace: str = "default",
    source: str = "hf://org/repo/model-Q8_0.gguf",
    gpu_bytes: int | None = None,
) -> dict[str, Any]:
    """As the reconciler annotates it; nobody makes its pods."""
    model = {"name": "model", "source": source, "format": "gguf", "sha256": SHA}
    inputs = {
        "runtime": "llama-server",
        "models": [model],
        "settings": {},
        "pool": {"name": "pool"},
    }
    needs = {} if gpu_bytes is None else {"device0": [gpu_bytes, gpu_bytes]}
    labels = _labels(service)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": service,
            "namespace": namespace,
            "labels": labels,
            "annotations": {
                INPUTS_ANNOTATION: json.dumps(inputs),
                NEEDS_ANNOTATION: json.dumps(needs),
            },
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "engine", "image": "engine.test/engine"}]},
            },
        },
    }


def result(labels: NodeLabels, tokens_per_second: float) -> BenchmarkResult:
    """Of the model of `deployment`, on one GPU of such a node."""
    device = DeviceClass.labelled(labels)
    assert device is not None
    key = BenchmarkKey(
        model=SHA,
        runtime="llama-server",
        build="b1",
        settings=settings_digest({}, "model"),
        device=device,
    )
    return BenchmarkResult(
        key=key,
        service="default/chat",
        model="model",
        node="any",
        generation=Speeds.of([tokens_per_second]),
        measured_at=time.time() - 60,
        iterations=1,
    )


def _labels(service: str) -> dict[str, str]:
    return {**LABELS, "inference.llmkube.dev/inference-service": service}
