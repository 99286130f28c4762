"""What measurements in a cluster are made of: services, pods, Jobs, and the words they leave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.api.benchmark import BenchmarkResult, DeviceClass, Speeds, config_map_data
from reconciler.api.meta import service_ref
from reconciler.api.nodelabels import NodeLabels
from reconciler.kube.benchmarks.deciding import JobAttempt, JobProgress, NeededBenchmark
from reconciler.kube.benchmarks.objects import benchmark_job, result_config_map
from reconciler.kube.benchmarks.reader import PodsAndNodesReader
from reconciler.kube.benchmarks.reading import read_attempt, read_evidence
from reconciler.kube.benchmarks.subjects import (
    MeasurableService,
    ServingPod,
    measurable,
    serving_pods,
)
from reconciler.kube.benchmarks.unserved import UnservedClass, unserved_classes
from reconciler.kube.inventory import labelled
from reconciler.kube.objects import INPUTS_DIGEST_ANNOTATION
from reconciler.kube.render import render
from reconciler.kube.render.placed import PlacedService, placed
from tests.support.cluster_views import CLUSTER, desired, fleet, pool
from tests.support.few_objects import FewObjects
from tests.support.fleets import model
from tests.support.scheduling import GIB, GPU, LABELS, node

L4 = NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=1)
CLASS = DeviceClass(vendor="NVIDIA", arch="sm_89", memory_gib=23, count=1)
REF = service_ref("chat")
DIGEST = "what its pods are made of"
PINNED = {"model.yaml": model(sha256="ab" * 32)}


def _placed(files: dict[str, str] | None = None, **spec: Any) -> PlacedService:
    (found,) = placed(desired(fleet(chat=spec) | PINNED | (files or {})), CLUSTER)
    return found


def _need() -> NeededBenchmark:
    service = measurable(_placed())
    assert isinstance(service, MeasurableService)
    pod = ServingPod(REF, "chat-1", "edge-1", "10.0.0.7", "image@sha256:1", CLASS)
    return NeededBenchmark(service.key(pod.build, CLASS), service, pod)


NEED = _need()
NO_GPU = {"l4.yaml": pool(hardware={"memory": "64Gi"})}
EMBEDS = {"runtimeOptions": {"embeddings": True}}


@pytest.mark.parametrize(
    ("files", "spec", "why"),
    [
        ({}, {"benchmark": {"enabled": False}}, "spec.benchmark.enabled is false"),
        ({}, {"suspend": True}, "it is suspended"),
        (NO_GPU, {}, "its pool l4 states no GPU"),
        ({"model.yaml": model()}, {}, "its Model gemma has no sha256"),
        ({}, EMBEDS, "it writes no text"),
        ({}, {"contextSize": 256}, "it has contextSize 256, which holds no prompt of 128 tokens"),
        ({}, {"runtime": "custom", "image": "a:1"}, "it writes no text"),
        (
            {"model.yaml": model(format="custom")},
            {"runtime": "custom", "image": "a:1", "runtimeOptions": {"speaks": "chat"}},
            "its program brings its own model",
        ),
        (
            {},
            {"runtime": "llamacpp-router", "model": None, "models": [{"name": "gemma"}]},
            "the models of a router are not measured in a cluster",
        ),
    ],
)
def test_what_is_not_measured_says_why(
    files: dict[str, str], spec: dict[str, Any], why: str
) -> None:
    found = measurable(_placed(files, **spec))

    assert isinstance(found, str)
    assert found.startswith(why)


def test_a_pool_without_a_stated_gpu_is_measured_where_the_service_says_so() -> None:
    found = measurable(_placed(NO_GPU, benchmark={"enabled": True}))

    assert isinstance(found, MeasurableService)


def _pod(**changes: Any) -> dict[str, Any]:
    """A pod that serves, by `path.to.field`-less parts: labels, annotations, spec, status."""
    engine = {"name": "engine", "image": "repo/image:1", "resources": {"limits": {GPU: "1"}}}
    status = {
        "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "engine", "imageID": "docker-pullable://repo@sha256:1"}],
    }
    labels = {**LABELS, "inference.llmkube.dev/inference-service": "chat"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "chat-1",
            "namespace": "default",
            "labels": labels,
            "annotations": {INPUTS_DIGEST_ANNOTATION: DIGEST},
            **changes.get("metadata", {}),
        },
        "spec": {"nodeName": "edge-1", "containers": [engine], **changes.get("spec", {})},
        "status": status | changes.get("status", {}),
    }


def _serving(pod: dict[str, Any], on: dict[str, Any]) -> list[ServingPod]:
    return list(serving_pods([pod], {"edge-1": on}, {REF: DIGEST}))


def test_a_pod_is_known_by_the_digest_of_its_image_and_by_the_labels_of_its_node() -> None:
    (found,) = _serving(_pod(), node("edge-1", L4))

    assert found == ServingPod(REF, "chat-1", "edge-1", "10.0.0.7", "repo@sha256:1", CLASS)


def test_without_a_digest_the_stated_image_counts() -> None:
    (found,) = _serving(_pod(status={"containerStatuses": None}), node("edge-1", L4))

    assert found.build == "repo/image:1"


_MIG = {"name": "engine", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}


@pytest.mark.parametrize(
    ("pod", "on"),
    [
        (_pod(status={"conditions": []}), node("edge-1", L4)),
        (_pod(status={"podIP": "model.example"}), node("edge-1", L4)),
        (_pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), node("edge-1", L4)),
        (_pod(metadata={"annotations": {INPUTS_DIGEST_ANNOTATION: "old"}}), node("edge-1", L4)),
        (_pod(spec={"containers": [_MIG]}), node("edge-1", L4)),
        (_pod(spec={"containers": []}), node("edge-1", L4)),
        (_pod(spec={"nodeName": "elsewhere"}), node("edge-1", L4)),
        (_pod(), node("edge-1")),
        (_pod(), node("edge-1", L4, gpus=4)),
    ],
    ids=[
        *("not ready", "no address", "going", "as it was declared before", "part of a GPU"),
        *("no GPU", "unknown node", "no labels", "a GPU that four pods share"),
    ],
)
def test_other_pods_are_not_measured(pod: dict[str, Any], on: dict[str, Any]) -> None:
    assert _serving(pod, on) == []


def test_the_job_has_no_rights_in_the_cluster_and_one_try_with_an_end() -> None:
    job = benchmark_job(NEED, 3)

    assert job["metadata"]["name"] == f"{NEED.key.config_map}-3"
    spec = job["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert (spec["restartPolicy"], job["spec"]["backoffLimit"]) == ("Never", 0)
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    (container,) = spec["containers"]
    assert container["args"][:2] == ["--host", "10.0.0.7"]
    assert GPU not in container["resources"].get("limits", {}), "it takes no device for itself"


H100 = NodeLabels("NVIDIA", 79 * GIB, "sm_90", int4=True, count=1)
H100_CLASS = DeviceClass(vendor="NVIDIA", arch="sm_90", memory_gib=79, count=1)
IN_POOL = {"pool": "gpus"}


def _unserved(
    service: PlacedService, *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] | None = None
) -> list[UnservedClass]:
    """Of a service whose one pod serves on `edge-1`, an L4, beside these nodes."""
    found = measurable(service)
    assert isinstance(found, MeasurableService)
    there = {n["metadata"]["name"]: n for n in (_in_pool("edge-1", L4), *nodes)}
    pods = (_pod(),) if pods is None else pods
    serving = serving_pods(pods, there, {REF: DIGEST})
    return list(unserved_classes({REF: found}, pods, there, serving))


def _in_pool(name: str, hardware: NodeLabels, **changes: Any) -> dict[str, Any]:
    made = node(name, hardware)
    made["metadata"]["labels"] |= IN_POOL | changes.get("labels", {})
    return {
        **made,
        "spec": changes.get("spec", {}),
        "status": made["status"] | changes.get("status", {}),
    }


def _elsewhere(
    cache: str = "ephemeral",
    arch: str | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
    **spec: Any,
) -> PlacedService:
    """On a pool of several nodes; `arch`: all of them are stated to be that."""
    gpu = {"vendor": "NVIDIA", "memory": "23Gi"} | ({"arch": arch} if arch else {})
    nodes = {"cluster": CLUSTER, "nodeSelector": IN_POOL, "count": 2, "cache": cache}
    hardware = {"memory": "64Gi", "devices": [gpu]}
    return _placed({"l4.yaml": pool(kubernetes=nodes, hardware=hardware), **files}, **spec)


def test_a_class_of_the_pool_where_no_pod_runs_is_found_with_the_build_of_the_pods() -> None:
    found = _unserved(_elsewhere(), _in_pool("edge-2", H100), _in_pool("edge-3", H100))

    (only,) = found
    assert (only.device, only.build, only.is_free) == (H100_CLASS, "repo@sha256:1", True)
    assert dict(only.labels) == {
        "flexinfer.ai/gpu.vendor": "NVIDIA",
        "flexinfer.ai/gpu.arch": "sm_90",
        "flexinfer.ai/gpu.vram": "79Gi",
    }


_TAINT = {"key": "team", "effect": "NoSchedule"}
_OF_GPUS = {"key": GPU, "effect": "NoSchedule"}
_DOWN = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


@pytest.mark.parametrize(
    "on",
    [
        _in_pool("edge-2", L4),
        _in_pool("edge-2", H100, labels={"pool": "other"}),
        _in_pool("edge-2", H100, spec={"unschedulable": True}),
        _in_pool("edge-2", H100, spec={"taints": [_TAINT]}),
        _in_pool("edge-2", H100, status=_DOWN),
        _in_pool("edge-2", H100, status={"allocatable": {}}),
        _in_pool("edge-2", H100, status={"allocatable": {GPU: "4"}}),
        _in_pool("edge-2", replace(H100, vendor="AMD", arch="gfx942")),
        _in_pool("edge-2", replace(H100, arch=None)),
    ],
    ids=[
        *("of a class that serves", "of another pool", "cordoned", "with somebody's taint", "down"),
        *("without a GPU", "whose GPU is shared", "of another vendor", "whose labels say little"),
    ],
)
def test_nothing_is_started_on_a_node_that_the_pods_could_not_have(on: dict[str, Any]) -> None:
    assert _unserved(_elsewhere(), on) == []


def test_nothing_is_started_where_a_model_does_not_run() -> None:
    other = _in_pool("edge-2", replace(H100, int4=False))
    of_4_bits = model(source="https://models.test/gemma-Q4_0.gguf", sha256="ab" * 32)

    assert len(_unserved(_elsewhere(), other)) == 1
    assert _unserved(_elsewhere(arch="sm_89"), other) == []
    assert _unserved(_elsewhere(files={"model.yaml": of_4_bits}), other) == []


def test_a_taint_that_its_pods_tolerate_keeps_no_measurement_away() -> None:
    tainted = _in_pool("edge-2", H100, spec={"taints": [_OF_GPUS]})

    assert len(_unserved(_elsewhere(), tainted)) == 1


def test_a_service_whose_pods_wait_for_a_gpu_has_it_first() -> None:
    waits = _pod(metadata={"name": "chat-2"}, spec={"nodeName": ""}, status={"conditions": []})
    over = _pod(metadata={"name": "chat-3"}, status={"phase": "Failed", "conditions": []})
    on = _in_pool("edge-2", H100)

    assert _unserved(_elsewhere(), on, pods=(_pod(), waits)) == []
    assert _unserved(_elsewhere(), on, pods=()) == []
    assert len(_unserved(_elsewhere(), on, pods=(_pod(), over))) == 1


def test_a_service_can_be_measured_where_it_serves_alone() -> None:
    only = _elsewhere(benchmark={"everyClass": False})

    assert _unserved(only, _in_pool("edge-2", H100)) == []


def test_what_pods_of_the_fleet_have_is_not_free() -> None:
    other = _pod(metadata={"name": "x", "labels": LABELS}, spec={"nodeName": "edge-2"})
    alone = {**other, "spec": {"nodeName": "edge-2", "initContainers": other["spec"]["containers"]}}
    free = _in_pool("edge-3", H100)

    for taking in (other, alone):
        pods = (_pod(), taking)
        (found,) = _unserved(_elsewhere(), _in_pool("edge-2", H100), pods=pods)
        assert not found.is_free
        (found,) = _unserved(_elsewhere(), _in_pool("edge-2", H100), free, pods=pods)
        assert found.is_free


def _started(service: PlacedService) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Job where none of its pods runs, and the pod of its Deployment."""
    (where,) = _unserved(service, _in_pool("edge-2", H100))
    found = measurable(service)
    assert isinstance(found, MeasurableService)
    need = NeededBenchmark(found.key(where.build, where.device), found, where)
    (serving,) = (m for m in render(service) if m["kind"] == "Deployment")
    return benchmark_job(need, 1), serving["spec"]["template"]["spec"]


@pytest.mark.parametrize("cache", ["ephemeral", "pvc:10Gi,RWX", "claim:models,RWX"])
def test_what_starts_an_engine_is_a_serving_pod_that_ends(cache: str) -> None:
    job, serving = _started(_elsewhere(cache))
    pod = job["spec"]["template"]["spec"]

    *models, engine = pod["initContainers"]
    served = {c["name"]: c for c in (*serving["initContainers"], *serving["containers"])}
    assert models == [c for c in serving["initContainers"] if c["name"] != "companion"]
    assert engine["restartPolicy"] == "Always", "it ends with the pod"
    assert engine["startupProbe"] == served["engine"]["startupProbe"]
    for part in ("image", "command", "args", "env", "resources", "volumeMounts", "securityContext"):
        assert engine[part] == served["engine"][part]
    assert engine["resources"]["limits"][GPU] == "1"
    assert pod["volumes"] == serving["volumes"]
    assert (pod["restartPolicy"], pod["priorityClassName"]) == ("Never", "fleet-batch")
    assert pod["nodeSelector"]["flexinfer.ai/gpu.arch"] == "sm_90"
    assert pod["nodeSelector"]["pool"] == "gpus"
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "benchmark", "no Service selects it"
    (asking,) = pod["containers"]
    assert asking["args"][:2] == ["--host", "127.0.0.1"]
    assert "--node" not in asking["args"]
    assert asking["env"][-1]["valueFrom"] == {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
    }
    told = _attempt({**labelled(job, "home", "chat"), "status": {}})
    assert (told.progress, told.starts) == (JobProgress.RUNNING, True)
    assert not _attempt(_ended()).starts


@pytest.mark.parametrize("cache", ["pvc:10Gi", "claim:models"])
def test_it_does_not_wait_for_a_claim_that_the_serving_pods_hold(cache: str) -> None:
    job, _ = _started(_elsewhere(cache))
    pod = job["spec"]["template"]["spec"]

    assert pod["initContainers"][0]["command"][-1] == "fetch"
    assert pod["volumes"][0] == {"name": "models", "emptyDir": {}}


def test_a_fetch_that_failed_is_why_there_is_no_result() -> None:
    ended = {"exitCode": 1, "message": "DownloadFailed: https://models.test says 404"}
    pod = _told("")
    pod["status"] = {"initContainerStatuses": [{"name": "fetch", "state": {"terminated": ended}}]}

    found = _attempt(_ended("Failed", reason="BackoffLimitExceeded"), pod)

    assert found.why == "DownloadFailed: https://models.test says 404"


def test_a_result_of_the_most_runs_fits_into_a_termination_message() -> None:
    longest = Speeds.of([12345.678 + n / 1000 for n in range(100)])
    found = _result(prompt=longest, generation=longest, iterations=100)

    assert len(found.model_dump_json(by_alias=True, exclude_none=True)) < 4096


def _result(**changes: Any) -> BenchmarkResult:
    values: dict[str, Any] = {
        "key": NEED.key,
        "service": "default/chat",
        "model": "gemma",
        "node": "edge-1",
        "generation": Speeds.of([50.0]),
        "measured_at": 1_800_000_000.0,
        "iterations": 1,
    }
    return BenchmarkResult(**values | changes)


def _ended(kind: str = "Complete", **condition: str) -> dict[str, Any]:
    """The Job, live, at its end."""
    made = json.loads(json.dumps(labelled(benchmark_job(NEED, 2), "home", "chat")))
    made["metadata"]["uid"] = "uid-job"
    ended = {"type": kind, "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    return {**made, "status": {"conditions": [{**ended, **condition}]}}


def _told(message: str, owner: str = "uid-job", code: int = 0) -> dict[str, Any]:
    """The Job's pod, with what its container left."""
    ended = {"exitCode": code, "message": message, "reason": "Error" if code else "Completed"}
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "status": {"containerStatuses": [{"name": "bench", "state": {"terminated": ended}}]},
    }


def _attempt(job: dict[str, Any], *pods: dict[str, Any]) -> JobAttempt:
    found = read_attempt(job, pods)
    assert found is not None
    return found


def test_a_job_that_has_ended_is_read_by_what_its_pod_left() -> None:
    found = _attempt(_ended(), _told(_result().model_dump_json(by_alias=True, exclude_none=True)))

    assert (found.progress, found.number, found.key) == (JobProgress.DONE, 2, NEED.key)
    assert found.result == _result()
    assert found.ended_at == 1_800_000_000.0
    assert found.service == REF


_OTHER = NEED.key.model_copy(update={"build": "another"})


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("Failed: it serves 2 requests", "Failed: it serves 2 requests"),
        (_result(problem="too noisy").model_dump_json(by_alias=True), "too noisy"),
        (
            _result(key=_OTHER).model_dump_json(by_alias=True, exclude_none=True),
            "its result is of something else",
        ),
        ('{"key": 1}', "its result is no benchmark result"),
        ("{" * 4096, "its result is no benchmark result"),
        ("", "it left no result"),
    ],
)
def test_what_is_no_result_that_counts_is_a_failure_that_says_why(message: str, why: str) -> None:
    found = _attempt(_ended(), _told(message))

    assert (found.progress, found.result) == (JobProgress.FAILED, None)
    assert found.why.startswith(why)


def test_a_pod_that_the_job_did_not_make_tells_nothing() -> None:
    forged = _told(_result().model_dump_json(by_alias=True), owner="uid-of-another")

    assert _attempt(_ended(), forged).why == "it left no result"
    elsewhere = _told(_result().model_dump_json(by_alias=True))
    elsewhere["metadata"]["namespace"] = "evil"
    assert _attempt(_ended(), elsewhere).why == "it left no result"


def test_a_job_that_took_too_long_says_so() -> None:
    late = _ended("Failed", reason="DeadlineExceeded", message="Job was active too long")

    assert _attempt(late).why == "DeadlineExceeded: Job was active too long"


def test_a_job_whose_key_was_edited_is_known_as_nothing() -> None:
    job = _ended()
    job["metadata"]["annotations"]["inference.llmkube.dev/benchmark-key"] = '{"model": "x"}'

    assert _attempt(job).key is None


def test_a_fetching_job_is_no_measurement() -> None:
    job = _ended()
    job["metadata"]["labels"]["app.kubernetes.io/component"] = "fetch"

    assert read_attempt(job, ()) is None


def test_a_result_is_read_back_from_its_config_map_until_somebody_edits_it() -> None:
    done = _attempt(_ended(), _told(_result().model_dump_json(by_alias=True, exclude_none=True)))
    made = result_config_map(_result(), done, {})

    assert made["data"] == config_map_data(_result())
    assert read_evidence(made).result == _result()
    edited = {**made, "data": {**made["data"], "tokensPerSecond": "9999.00"}}
    found = read_evidence(edited)
    assert found.result is None
    assert "was edited by hand (tokensPerSecond)" in found.refused
    elsewhere = {**made, "metadata": {**made["metadata"], "namespace": "evil"}}
    assert read_evidence(elsewhere).refused == (
        "is of default/chat, a service of another namespace"
    )


@pytest.mark.parametrize(
    ("serving", "measuring", "at", "is_read"),
    [
        ("as before", "as before", 299.0, False),
        ("as before", "as before", 301.0, True),
        ("rolls out", "as before", 39.0, False),
        ("rolls out", "as before", 41.0, True),
        ("as before", "ended", 3.0, True),
    ],
)
def test_pods_that_roll_out_are_read_for_a_twentieth_of_the_time(
    serving: str, measuring: str, at: float, is_read: bool
) -> None:
    """The first look took two seconds."""
    with FewObjects() as server:
        reader = PodsAndNodesReader(server.api, iter([0.0, 2.0, at, at]).__next__)
        reader.find(("as before",), ("as before",))
        before = len(server.asked)

        reader.find((serving,), (measuring,))

        assert (len(server.asked) > before) is is_read
