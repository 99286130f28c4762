"""A measurement as objects of a cluster: the Job that makes it, and the ConfigMap of its result.
Pure.

The Job has no rights in the cluster. What it found is the termination message of its container,
and the reconciler writes it down: so nobody but the reconciler can say how fast something is.
"""

from __future__ import annotations

from typing import Any

from reconciler.api.benchmark import BenchmarkResult, config_map_data
from reconciler.api.meta import MEASURE_AGAIN_ANNOTATION
from reconciler.kube.benchmarks.deciding import JobAttempt, NeededBenchmark
from reconciler.kube.benchmarks.reading import (
    ATTEMPT_ANNOTATION,
    CONTAINER,
    KEY_ANNOTATION,
)
from reconciler.kube.objects import Manifest
from reconciler.kube.render.containers import every_pod, own_program
from reconciler.kube.render.labels import (
    BENCHMARK,
    COMPONENT_LABEL,
    labels,
    pod_labels,
)
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.subject import Subject

_LONGEST_S = 3600  # an image that cannot be pulled, a service that is never idle


def benchmark_job(need: NeededBenchmark, attempt: int) -> Manifest:
    """One attempt; it is not repeated by Kubernetes, which knows no pause of hours."""
    subject = Subject.of(need.service.placed)
    placed = subject.placed
    container = own_program(subject, CONTAINER, _arguments(subject, need))
    key = need.key.model_dump_json(by_alias=True, exclude_none=True)
    asked = {MEASURE_AGAIN_ANNOTATION: need.asked} if need.asked else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{need.key.config_map}-{attempt}",
            "namespace": placed.workload.ref.namespace,
            "labels": {**labels(placed), COMPONENT_LABEL: BENCHMARK},
            "annotations": {KEY_ANNOTATION: key, ATTEMPT_ANNOTATION: str(attempt), **asked},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _LONGEST_S,
            "template": {
                "metadata": {"labels": pod_labels(placed, BENCHMARK)},
                "spec": {
                    "restartPolicy": "Never",
                    **every_pod(subject),
                    **onto_pool(subject),
                    "containers": [container],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def result_config_map(
    result: BenchmarkResult, attempt: JobAttempt, job_labels: dict[str, str]
) -> dict[str, Any]:
    """`job_labels` are those of the Job that measured, whose service it belongs to."""
    asked = {"annotations": {MEASURE_AGAIN_ANNOTATION: attempt.asked}} if attempt.asked else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": result.key.config_map,
            "namespace": attempt.oid.namespace,
            "labels": job_labels,
            **asked,
        },
        "data": config_map_data(result),
    }


def _arguments(subject: Subject, need: NeededBenchmark) -> list[str]:
    measured = subject.placed.service.spec.benchmark
    key = need.key.model_dump_json(by_alias=True, exclude_none=True)
    return [
        *("--host", need.pod.address),
        *("--port", str(subject.port)),
        *("--model", need.service.model),
        *("--service", need.service.ref.label),
        *("--node", need.pod.node),
        *("--key", key),
        *("--warmups", str(measured.warmup_iterations)),
        *("--runs", str(measured.iterations)),
        *("--longest", f"{measured.min_duration:g}s"),
    ]
