"""A measurement as objects of a cluster: the Job that makes it, and the ConfigMap of its result.
Pure.

The Job has no rights in the cluster. What it found is the termination message of its container,
and the reconciler writes it down: so nobody but the reconciler can say how fast something is.
"""

from __future__ import annotations

from typing import Any, assert_never

from reconciler.api.benchmark import BenchmarkResult, config_map_data
from reconciler.api.meta import MEASURE_AGAIN_ANNOTATION
from reconciler.kube.benchmarks.deciding import JobAttempt, NeededBenchmark
from reconciler.kube.benchmarks.reading import (
    ATTEMPT_ANNOTATION,
    CONTAINER,
    KEY_ANNOTATION,
)
from reconciler.kube.benchmarks.starting import LONGEST_S, starting_pod
from reconciler.kube.benchmarks.subjects import ServingPod
from reconciler.kube.benchmarks.unserved import UnservedClass
from reconciler.kube.objects import Manifest
from reconciler.kube.render.containers import NODE, every_pod, own_program
from reconciler.kube.render.labels import (
    BENCHMARK,
    COMPONENT_LABEL,
    labels,
    pod_labels,
)
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.subject import Subject

_ITSELF = "127.0.0.1"  # its pod has the engine


def benchmark_job(need: NeededBenchmark, attempt: int) -> Manifest:
    """One attempt; it is not repeated by Kubernetes, which knows no pause of hours."""
    subject = Subject.of(need.service.placed)
    placed = subject.placed
    pod, longest_s = _pod(subject, need)
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
            "activeDeadlineSeconds": longest_s,
            "template": {
                "metadata": {"labels": pod_labels(placed, BENCHMARK)},
                "spec": {"restartPolicy": "Never", **pod},
            },
        },
    }


def _pod(subject: Subject, need: NeededBenchmark) -> tuple[dict[str, Any], int]:
    """What measures, and how many seconds it may take."""
    match need.place:
        case ServingPod(address=address, node=node):
            at = ["--host", address, "--node", node]
            asking = own_program(subject, CONTAINER, [*at, *_arguments(subject, need)])
            volumes = [{"name": "tmp", "emptyDir": {}}]
            pod = {**every_pod(subject), **onto_pool(subject), "containers": [asking]}
            return {**pod, "volumes": volumes}, LONGEST_S
        case UnservedClass() as unserved:
            asking = own_program(
                subject, CONTAINER, ["--host", _ITSELF, *_arguments(subject, need)]
            )
            asking["env"].append(NODE)
            return starting_pod(subject, unserved, asking)
        case _ as never:
            assert_never(never)


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
        *("--port", str(subject.port)),
        *("--model", need.service.model),
        *("--service", need.service.ref.label),
        *("--key", key),
        *("--warmups", str(measured.warmup_iterations)),
        *("--runs", str(measured.iterations)),
        *("--longest", f"{measured.min_duration:g}s"),
    ]
