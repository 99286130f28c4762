"""The classes of devices of a service's pool where no pod of it runs: there an engine is started
for a measurement alone. Pure.

The service comes first: nothing is started before all of its own pods are ready, nor on a node that
they could not have. Any author of an object may write nonsense: what makes no sense is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api.benchmark import DeviceClass
from reconciler.api.meta import ObjectRef
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels, archs_of
from reconciler.fleet.quantisation import is_of_4_bits
from reconciler.kube.benchmarks.subjects import (
    MeasurableService,
    ServingPod,
    gpus_of,
    is_serving,
    is_shared,
    offered_gpus,
)
from reconciler.kube.objects import Manifest, service_of
from reconciler.kube.render.labels import COMPONENT_LABEL, SERVER
from reconciler.kube.render.resources import resources
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.subject import Subject
from reconciler.kube.running.readiness import conditions_of
from reconciler.placement.gpus import vendor_of
from reconciler.placement.nodefit import CandidateNode, PodDemand, node_misfit

_OF_A_CLASS = tuple(DEFAULT_PREFIX + key for key in ("gpu.vendor", "gpu.arch", "gpu.vram"))
_OVER = ("Succeeded", "Failed")
_HOLDS_BACK = ("NoSchedule", "NoExecute")

Taken = Mapping[tuple[str, str], int]
"""(node, resource) -> how many our pods have there."""


@dataclass(frozen=True, slots=True)
class UnservedClass:
    """`labels` choose nodes of the class. `build` is the image of the service's pods elsewhere.
    `is_free`: on one of the nodes our own pods leave enough of its GPUs."""

    service: ObjectRef
    build: str
    device: DeviceClass
    labels: tuple[tuple[str, str], ...]
    is_free: bool

    @property
    def name(self) -> str:
        return str(self.device)


def unserved_classes(
    services: Mapping[ObjectRef, MeasurableService],
    pods: Iterable[Manifest],
    nodes: Mapping[str, Manifest],
    serving: Iterable[ServingPod],
) -> Iterator[UnservedClass]:
    """`serving`: what is measured where it serves."""
    pods, taken = tuple(pods), _taken(pods)
    late = {service_of(pod) for pod in pods if _is_late(pod)}
    by_service: dict[ObjectRef, list[ServingPod]] = {}
    for pod in sorted(serving, key=lambda p: p.name):
        by_service.setdefault(pod.service, []).append(pod)
    for ref, own in by_service.items():
        service = services[ref]
        if ref not in late and service.placed.service.spec.benchmark.every_class:
            yield from _classes(service, own, nodes, taken)


def _classes(
    service: MeasurableService, own: list[ServingPod], nodes: Mapping[str, Manifest], taken: Taken
) -> Iterator[UnservedClass]:
    demand, pod = _wanted(service)
    served = {each.device for each in own}
    found: dict[DeviceClass, UnservedClass] = {}
    for name, node in sorted(nodes.items()):
        device = _device(demand, pod, name, node)
        if device is None or device in served:
            continue
        labels = node["metadata"]["labels"]
        resource = demand.resource or ""
        left = offered_gpus(node, resource) - taken.get((name, resource), 0)
        is_free = left >= demand.gpus
        known = found.get(device)
        if known is None:
            chosen = tuple((key, labels[key]) for key in _OF_A_CLASS)
            known = UnservedClass(service.ref, own[0].build, device, chosen, is_free)
        found[device] = replace(known, is_free=known.is_free or is_free)
    yield from found.values()


def _wanted(service: MeasurableService) -> tuple[PodDemand, Mapping[str, Any]]:
    """What a pod of the service wants of its node, and where it may go."""
    placed, subject = service.placed, Subject.of(service.placed)
    resource, gpus = gpus_of({"containers": [{"resources": resources(subject)}]})
    node, workload = placed.node.spec, placed.workload
    on_devices = [need.bytes for need in workload.needs if need.pool.startswith("device")]
    demand = PodDemand(
        service=service.ref.label,
        gpus=gpus,
        resource=resource or None,
        vendor=vendor_of(resource),
        archs=archs_of([device.arch for device in node.hardware.devices]),
        int4=any(map(is_of_4_bits, workload.inputs["models"])),
        gpu_bytes=max(on_devices, default=None),
        share=node.memory.devices.fraction,
    )
    return demand, onto_pool(subject)


def _device(
    demand: PodDemand, pod: Mapping[str, Any], name: str, node: Manifest
) -> DeviceClass | None:
    """The class of a node that a pod of the service could have; None: it could not."""
    metadata, resource = node["metadata"], demand.resource or ""
    texts = metadata.get("labels") or {}
    labels = NodeLabels.read(texts, metadata.get("annotations") or {})
    offered = offered_gpus(node, resource)
    if not 0 < demand.gpus <= offered or is_shared(labels, offered):
        return None
    if not _is_open(pod, node) or any(key not in texts for key in _OF_A_CLASS):
        return None
    if labels.vendor != demand.vendor:  # of a node with two vendors, its labels are of the other
        return None
    candidate = CandidateNode(name, labels, ((resource, offered),))
    if node_misfit(demand, candidate) is not None:
        return None
    return DeviceClass.labelled(labels, demand.gpus)


def _is_open(pod: Mapping[str, Any], node: Manifest) -> bool:
    """Whether it is of the pool, up, and takes the pod."""
    labels, spec = node["metadata"].get("labels") or {}, node.get("spec") or {}
    ready = conditions_of(node.get("status") or {}).get("Ready", {}).get("status", "True")
    tolerated = {each["key"] for each in pod.get("tolerations", ())}
    held = (
        taint.get("effect") in _HOLDS_BACK
        and not (taint.get("key") in tolerated and taint.get("effect") == "NoSchedule")
        for taint in spec.get("taints") or ()
    )
    chosen = pod.get("nodeSelector", {}).items()
    is_chosen = all(labels.get(key) == text for key, text in chosen)
    return is_chosen and ready == "True" and not spec.get("unschedulable") and not any(held)


def _taken(pods: Iterable[Manifest]) -> Taken:
    found = Counter[tuple[str, str]]()
    for pod in pods:
        spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
        resource, gpus = gpus_of(spec)
        if gpus and phase not in _OVER:
            found[str(spec.get("nodeName", "")), resource] += gpus
    return found


def _is_late(pod: Manifest) -> bool:
    """Whether it is to serve, and does not yet."""
    metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
    is_server = (metadata.get("labels") or {}).get(COMPONENT_LABEL) == SERVER
    is_going = bool(metadata.get("deletionTimestamp")) or phase in _OVER
    return is_server and not is_going and not is_serving(pod)
