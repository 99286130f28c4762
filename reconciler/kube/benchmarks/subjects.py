"""What could be measured: the models of services, and the pods that serve them. Pure.

Any author of an object may write nonsense: what makes no sense is not measured.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.benchmark import BenchmarkKey, DeviceClass
from reconciler.api.benchmark_settings import settings_digest, writes_nothing
from reconciler.api.meta import ObjectRef
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels
from reconciler.api.vendors import GPU_RESOURCES
from reconciler.kube.objects import INPUTS_DIGEST_ANNOTATION, Manifest, service_of
from reconciler.kube.render.containers import ENGINE
from reconciler.kube.render.labels import COMPONENT_LABEL, SERVER
from reconciler.kube.render.placed import PlacedService
from reconciler.kube.running.readiness import conditions_of
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import CHAT, COMPLETIONS

_MOST_BUILD = 512  # characters, as a key takes them


@dataclass(frozen=True, slots=True)
class MeasurableService:
    """A service of one model that writes text, with a digest that names its bytes."""

    placed: PlacedService
    model: str
    digest: str
    settings: str

    @property
    def ref(self) -> ObjectRef:
        return self.placed.workload.ref

    def key(self, build: str, device: DeviceClass) -> BenchmarkKey:
        return BenchmarkKey(
            model=self.digest,
            runtime=self.placed.workload.runtime,
            build=build,
            settings=self.settings,
            device=device,
        )


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A pod that is ready and serves what is declared now. `build` is the engine's image."""

    service: ObjectRef
    name: str
    node: str
    address: str
    build: str
    device: DeviceClass


def measurable(placed: PlacedService) -> MeasurableService | str:
    """What of a service can be measured, or why nothing is."""
    workload, stated = placed.workload, placed.service.spec.benchmark.enabled
    pool = workload.pool
    states_gpu = pool is not None and pool.accelerator not in (None, "cpu")
    settings: Mapping[str, Any] = workload.inputs["settings"]
    if stated is False:
        return "spec.benchmark.enabled is false"
    if workload.suspended:
        return "it is suspended"
    if stated is None and not states_gpu:
        return f"its pool {placed.node.metadata.name} states no GPU"
    if RUNTIMES[workload.runtime].serves_many:
        return "the models of a router are not measured in a cluster"
    if {CHAT, COMPLETIONS}.isdisjoint(RUNTIMES[workload.runtime].apis(workload.settings)):
        return "it writes no text"
    if not workload.models:
        return "its program brings its own model, so that nothing says which bytes it serves"
    model = workload.models[0]
    if model.sha256 is None:
        return f"its Model {model.name} has no sha256, so that nothing says which bytes it serves"
    if why := writes_nothing(settings, model.name):
        return f"it {why}"
    return MeasurableService(
        placed, model.name, model.sha256, settings_digest(settings, model.name)
    )


def served(placed: Iterable[PlacedService]) -> frozenset[tuple[str, str, str]]:
    """(namespace, digest of a model, runtime) of all that is declared there, measurable or not."""
    return frozenset(
        (each.workload.ref.namespace, model.sha256, each.workload.runtime)
        for each in placed
        for model in each.workload.models
        if model.sha256 is not None
    )


def serving_pods(
    pods: Iterable[Manifest],
    nodes: Mapping[str, Manifest],
    current: Mapping[ObjectRef, str],
    prefix: str = DEFAULT_PREFIX,
) -> Iterator[ServingPod]:
    """Those of `current`, services with the digest of what their pods are made from now, whose
    devices are known. A GPU that several pods share is nobody's measure."""
    for pod in pods:
        ref = service_of(pod)
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        annotations = metadata.get("annotations") or {}
        if ref is None or not is_serving(pod):
            continue
        if current.get(ref) != annotations.get(INPUTS_DIGEST_ANNOTATION) or ref not in current:
            continue
        node, address = nodes.get(spec.get("nodeName", "")), _address(status.get("podIP"))
        device = None if node is None else _device(spec, node, prefix)
        build = _build(spec, status)
        if device is not None and address is not None and build:
            name = str(metadata["name"])
            yield ServingPod(ref, name, str(spec["nodeName"]), address, build, device)


def is_serving(pod: Manifest) -> bool:
    metadata = pod["metadata"]
    is_server = (metadata.get("labels") or {}).get(COMPONENT_LABEL) == SERVER
    ready = conditions_of(pod.get("status") or {}).get("Ready", {}).get("status") == "True"
    return is_server and ready and not metadata.get("deletionTimestamp")


def _device(spec: Mapping[str, Any], node: Manifest, prefix: str) -> DeviceClass | None:
    resource, count = gpus_of(spec)
    metadata = node["metadata"]
    labels = NodeLabels.read(
        metadata.get("labels") or {}, metadata.get("annotations") or {}, prefix
    )
    shared = is_shared(labels, offered_gpus(node, resource))
    return None if shared else DeviceClass.labelled(labels, count)


def offered_gpus(node: Manifest, resource: str) -> int:
    return _whole(((node.get("status") or {}).get("allocatable") or {}).get(resource))


def is_shared(labels: NodeLabels, offered: int) -> bool:
    """Whether several pods have one GPU of the node."""
    return labels.count is not None and offered > labels.count


def gpus_of(spec: Mapping[str, Any]) -> tuple[str, int]:
    """The resource by which a pod asks for whole GPUs, and how many. An engine that is started for
    a measurement is an init container."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        limits = (container.get("resources") or {}).get("limits") or {}
        for name in sorted(GPU_RESOURCES & limits.keys()):
            return name, _whole(limits[name])
    return "", 0


def _build(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The engine's image: by its digest where the kubelet tells it, as a tag may move."""
    states = [s for s in status.get("containerStatuses") or () if s.get("name") == ENGINE]
    stated = [c for c in spec.get("containers") or () if c.get("name") == ENGINE]
    known = [str(s.get("imageID") or "") for s in states] + [str(c.get("image")) for c in stated]
    first_known = next((image for image in known if image), "")
    return first_known.rpartition("://")[2][:_MOST_BUILD]


def _address(text: object) -> str | None:
    try:
        return str(ipaddress.ip_address(str(text)))
    except ValueError:
        return None


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
