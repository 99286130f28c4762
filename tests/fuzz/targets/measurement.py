"""What a benchmark's Job leaves behind, and a ConfigMap of it, as anybody may have written them.
No error at all: what is no result is a failure that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.api.benchmark import (
    BenchmarkKey,
    BenchmarkResult,
    DeviceClass,
    Speeds,
    config_map_data,
)
from reconciler.kube.benchmarks.reading import KEY_ANNOTATION, read_attempt, read_evidence
from tests.fuzz.target import JSON_PIECES, Target

_KEY = BenchmarkKey(
    model="ab" * 32,
    runtime="llama-server",
    build="image@sha256:1",
    settings="cd" * 32,
    device=DeviceClass(vendor="NVIDIA", arch="sm_89", memory_gib=23, count=1),
)
_RESULT = BenchmarkResult(
    key=_KEY,
    service="default/chat",
    model="gemma",
    node="edge-1",
    generation=Speeds.of([50.0, 51.0]),
    measured_at=1_800_000_000.0,
    iterations=2,
)


def _prepare(_: Path) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        text = data.decode(errors="replace")
        told = config_map_data(_RESULT)
        metadata = {"name": _KEY.config_map, "namespace": "default"}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        found = read_evidence({**config_map, "data": {**told, "result": text}})
        assert found.result is not None or found.refused
        for key in (text, _KEY.model_dump_json(by_alias=True)):
            attempt = read_attempt(_job(key, text), [_pod(text)])
            assert attempt is not None
            assert attempt.result is not None or attempt.why

    return read


def _job(key: str, when: str) -> dict[str, object]:
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": when[:64]}
    labels = {
        "app.kubernetes.io/component": "benchmark",
        "inference.llmkube.dev/inference-service": "chat",
    }
    metadata = {"name": "bench-1", "namespace": "default", "uid": "u", "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "annotations": {KEY_ANNOTATION: key}},
        "status": {"conditions": [ended]},
    }


def _pod(message: str) -> dict[str, object]:
    ended = {"exitCode": 0, "message": message}
    return {
        "metadata": {"name": "p", "ownerReferences": [{"uid": "u", "controller": True}]},
        "status": {"containerStatuses": [{"name": "bench", "state": {"terminated": ended}}]},
    }


def _seeds() -> Iterable[bytes]:
    yield _RESULT.model_dump_json(by_alias=True, exclude_none=True).encode()
    yield _KEY.model_dump_json(by_alias=True, exclude_none=True).encode()
    yield b"Failed: it serves 2 requests"
    yield b"2026-11-23T13:00:00Z"


TARGET = Target("measurement", _prepare, _seeds, pieces=JSON_PIECES, is_json=True)
