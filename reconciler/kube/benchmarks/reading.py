"""What Jobs and ConfigMaps of measurements say, read from what is there. Pure.

Their results may be anybody's words: what is no result, or of something else, is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from reconciler.api.benchmark import (
    BenchmarkKey,
    BenchmarkResult,
    read_config_map,
    read_result,
)
from reconciler.api.errors import BenchmarkError
from reconciler.api.meta import GROUP, MEASURE_AGAIN_ANNOTATION
from reconciler.api.plain_json import parse_json
from reconciler.kube.benchmarks.deciding import JobAttempt, JobProgress, KnownResult
from reconciler.kube.objects import Manifest, id_of, service_of
from reconciler.kube.render.labels import is_benchmark
from reconciler.kube.running.pods import trouble
from reconciler.kube.running.readiness import conditions_of
from reconciler.timestamps import parse_timestamp

KEY_ANNOTATION = f"{GROUP}/benchmark-key"  # of a Job: BenchmarkKey as JSON
ATTEMPT_ANNOTATION = f"{GROUP}/benchmark-attempt"
CONFIG_MAP = "bench-"  # how the name of a result begins
CONTAINER = "bench"
_MOST_READ = 4096  # characters of a termination message, which Kubernetes cuts there too
_MOST_WORD = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """What a Job left behind: a result, or why there is none."""

    result: BenchmarkResult | None = None
    why: str = ""


def asked_of(live: Manifest | None) -> str | None:
    """The words by which somebody asks for another measurement; they name no time."""
    annotations = ((live or {}).get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(MEASURE_AGAIN_ANNOTATION) or "")[:_MOST_WORD] or None


def read_evidence(config_map: Manifest) -> KnownResult:
    oid = id_of(config_map)
    try:
        result = read_config_map(oid.name, config_map.get("data") or {})
    except BenchmarkError as error:
        return KnownResult(oid, None, str(error))
    if result.service.partition("/")[0] != oid.namespace:  # who writes there says nothing of others
        return KnownResult(oid, None, f"is of {result.service}, a service of another namespace")
    return KnownResult(oid, result, asked=asked_of(config_map))


def read_attempt(job: Manifest, pods: Iterable[Manifest]) -> JobAttempt | None:
    """None: it is no measurement, or it is going already."""
    metadata, ref = job["metadata"], service_of(job)
    if ref is None or not is_benchmark(job) or metadata.get("deletionTimestamp"):
        return None
    annotations = metadata.get("annotations") or {}
    key = _key(annotations.get(KEY_ANNOTATION))
    number = str(annotations.get(ATTEMPT_ANNOTATION) or "")
    is_number = number.isascii() and number.isdecimal() and len(number) < 6
    ended_at, why = _end(job)
    oid, at = id_of(job), int(number) if is_number else 1
    starts = _starts_an_engine(job)
    if ended_at is None:
        asked = asked_of(job)
        return JobAttempt(oid, ref, key, at, JobProgress.RUNNING, asked=asked, starts=starts)
    measured = _of_key(_left(job, pods), key)
    return JobAttempt(
        *(oid, ref, key, at, JobProgress.DONE if measured.result else JobProgress.FAILED),
        ended_at=ended_at,
        result=measured.result,
        why=measured.why or why,
        asked=asked_of(job),
        starts=starts,
    )


def _starts_an_engine(job: Manifest) -> bool:
    node: Any = job
    for name in ("spec", "template", "spec", "initContainers"):
        node = node.get(name) if isinstance(node, dict) else None
    return bool(node)


def _of_key(measured: Measured, key: BenchmarkKey | None) -> Measured:
    """Keep a result only if it counts, and is of what was to be measured."""
    if measured.result is None:
        return measured
    if measured.result.key != key:
        return Measured(why="its result is of something else")
    return Measured(why=measured.result.problem) if measured.result.problem else measured


def _key(text: object) -> BenchmarkKey | None:
    with contextlib.suppress(ValueError, ValidationError):
        return BenchmarkKey.model_validate(parse_json(str(text)))
    return None


def _end(job: Manifest) -> tuple[float | None, str]:
    """When it ended, and why it failed; None: it has not ended."""
    conditions = conditions_of(job.get("status") or {})
    for kind in ("Complete", "Failed"):
        ended = conditions.get(kind, {})
        if ended.get("status") == "True":
            text = f"{ended.get('reason', '')}: {ended.get('message', '')}".strip(": ")
            when = ended.get("lastTransitionTime") or job["metadata"].get("creationTimestamp")
            ended_at = parse_timestamp(when) or 0.0  # nobody knows: long ago
            return ended_at, text if kind == "Failed" else "it left no result"
    return None, ""


def _left(job: Manifest, pods: Iterable[Manifest]) -> Measured:
    """By the pod that the Job itself made: a name or a label is soon copied, and an owner named
    from another namespace is none."""
    uid, namespace = job["metadata"].get("uid"), job["metadata"].get("namespace")
    own = [p for p in pods if p["metadata"].get("namespace") == namespace and uid in _owners(p)]
    for message in (m for pod in own for m in _messages(pod)):
        if not message.startswith("{"):
            return Measured(why=message)
        try:
            return Measured(read_result(message, "its result"))
        except BenchmarkError as error:
            return Measured(why=str(error))
    pod_trouble = trouble(own)
    return Measured(why=f"{pod_trouble.reason}: {pod_trouble.message}" if pod_trouble else "")


def _owners(pod: Manifest) -> Iterator[object]:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            yield owner.get("uid")


def _messages(pod: Manifest) -> Iterator[str]:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended: Mapping[str, Any] = (status.get("state") or {}).get("terminated") or {}
        text = str(ended.get("message") or "")[:_MOST_READ].strip()
        if status.get("name") == CONTAINER and text:
            yield " ".join(text.split())
