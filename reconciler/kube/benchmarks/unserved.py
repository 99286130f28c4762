"""The classes of devices of a service's pool where no pod of it runs: there an engine is started
for a measurement alone. Pure.

The service comes first: nothing is started before all of its own pods are ready, nor on a node that
they could not have. Any author of an object may write nonsense: what makes no sense is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.api.benchmark import DeviceClass
from reconciler.api.meta import ObjectRef
from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels, archs_of
from reconciler.api.vendors import vendor_of
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
from reconciler.placement.nodefit import CandidateNode, PodDemand, node_misfit

_OF_A_CLASS = tuple(DEFAULT_PREFIX + key for key in ("gpu.vendor", "gpu.arch", "gpu.vram"))
_OVER = ("Succeeded", "Failed")
_HOLDS_BACK = ("NoSchedule", "NoExecute")


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


@dataclass(frozen=True, slots=True)
class PodWants:
    """What a pod of a service wants of a node, and which nodes it may have: those with the labels
    of `selector`, and no other taints than `tolerated`."""

    demand: PodDemand
    selector: tuple[tuple[str, str], ...] = ()
    tolerated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, service: MeasurableService) -> PodWants:
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
        chosen = onto_pool(subject)
        tolerated = frozenset(each["key"] for each in chosen.get("tolerations", ()))
        return cls(demand, tuple(chosen.get("nodeSelector", {}).items()), tolerated)


def unserved_classes(
    services: Mapping[ObjectRef, MeasurableService],
    pods: Iterable[Manifest],
    nodes: Mapping[str, Manifest],
    serving: Iterable[ServingPod],
    wants_of: Callable[[MeasurableService], PodWants] = PodWants.of,
) -> Iterator[UnservedClass]:
    """`serving`: what is measured where it serves. `wants_of` may keep what it found before."""
    pods = tuple(pods)
    hardware = _Hardware.of(nodes, pods)
    late = {service_of(pod) for pod in pods if _is_late(pod)}
    by_service: dict[ObjectRef, list[ServingPod]] = {}
    for pod in sorted(serving, key=lambda p: p.name):
        by_service.setdefault(pod.service, []).append(pod)
    for ref, own in by_service.items():
        service = services[ref]
        if ref in late or not service.placed.service.spec.benchmark.every_class:
            continue
        others = hardware.beside({pod.device for pod in own}, own[0].device.count)
        if others:
            yield from _classes(service, own[0].build, hardware, others, wants_of(service))


Kinds = Mapping[DeviceClass, Iterable[NodeLabels]]


def _classes(
    service: MeasurableService, build: str, hardware: _Hardware, others: Kinds, wants: PodWants
) -> Iterator[UnservedClass]:
    demand = wants.demand
    for device, kinds in others.items():
        largest: _Room | None = None
        for labels in kinds:
            is_other = labels.vendor != demand.vendor  # of a node with those of two vendors
            if is_other or node_misfit(demand, CandidateNode("", labels)) is not None:
                continue
            room = hardware.room(labels, wants)
            if room is not None and (largest is None or room.is_free):
                largest = room
        if largest is not None:
            yield UnservedClass(service.ref, build, device, largest.labels, largest.is_free)


@dataclass(frozen=True, slots=True)
class _Room:
    """A node that pods could have, by the labels of its class."""

    labels: tuple[tuple[str, str], ...]
    is_free: bool


@dataclass(slots=True)
class _Hardware:
    """The nodes of a cluster by what their labels say of their GPUs, and what of these our pods
    have: (node, resource) -> how many. Many services ask for the same room."""

    kinds: Mapping[NodeLabels, list[tuple[str, Manifest]]]
    taken: Mapping[tuple[str, str], int]
    _rooms: dict[tuple[object, ...], _Room | None] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[str, Manifest], pods: Iterable[Manifest]) -> _Hardware:
        kinds: dict[NodeLabels, list[tuple[str, Manifest]]] = {}
        for name, node in sorted(nodes.items()):
            texts = node["metadata"].get("labels") or {}
            if all(key in texts for key in _OF_A_CLASS):
                node_labels = NodeLabels.read(texts, node["metadata"].get("annotations") or {})
                kind = replace(node_labels, count=None, avx512=None)
                kinds.setdefault(kind, []).append((name, node))
        return cls(kinds, _taken(pods))

    def beside(self, served: Container[DeviceClass], gpus: int) -> Kinds:
        """The classes that a pod with so many GPUs could be on, and is not."""
        kinds: dict[DeviceClass, list[NodeLabels]] = {}
        for labels in self.kinds:
            device = DeviceClass.labelled(labels, gpus)
            if device is not None and device not in served:
                kinds.setdefault(device, []).append(labels)
        return kinds

    def room(self, labels: NodeLabels, wants: PodWants) -> _Room | None:
        """None: no such node takes the pod."""
        demand = wants.demand
        key = (labels, wants.selector, wants.tolerated, demand.resource, demand.gpus)
        if key not in self._rooms:
            self._rooms[key] = self._find(labels, wants)
        return self._rooms[key]

    def _find(self, labels: NodeLabels, wants: PodWants) -> _Room | None:
        resource, gpus = wants.demand.resource or "", wants.demand.gpus
        room: _Room | None = None
        for name, node in self.kinds[labels]:
            texts = node["metadata"]["labels"]
            offered = offered_gpus(node, resource)
            node_labels = NodeLabels.read(texts)
            if (
                not 0 < gpus <= offered
                or is_shared(node_labels, offered)
                or not _is_open(wants, node)
            ):
                continue
            is_free = offered - self.taken.get((name, resource), 0) >= gpus
            room = _Room(tuple((key, texts[key]) for key in _OF_A_CLASS), is_free)
            if is_free:
                break
        return room


def _is_open(wants: PodWants, node: Manifest) -> bool:
    """Whether it is of the pool, up, and takes the pod."""
    labels, spec = node["metadata"].get("labels") or {}, node.get("spec") or {}
    ready = conditions_of(node.get("status") or {}).get("Ready", {}).get("status", "True")
    repelled = (
        taint.get("effect") in _HOLDS_BACK
        and not (taint.get("key") in wants.tolerated and taint.get("effect") == "NoSchedule")
        for taint in spec.get("taints") or ()
    )
    is_chosen = all(labels.get(key) == text for key, text in wants.selector)
    return is_chosen and ready == "True" and not spec.get("unschedulable") and not any(repelled)


def _taken(pods: Iterable[Manifest]) -> Mapping[tuple[str, str], int]:
    taken = Counter[tuple[str, str]]()
    for pod in pods:
        spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
        resource, gpus = gpus_of(spec)
        if gpus and phase not in _OVER:
            taken[str(spec.get("nodeName", "")), resource] += gpus
    return taken


def _is_late(pod: Manifest) -> bool:
    """Whether it is to serve, and does not yet."""
    metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
    is_server = (metadata.get("labels") or {}).get(COMPONENT_LABEL) == SERVER
    is_going = bool(metadata.get("deletionTimestamp")) or phase in _OVER
    return is_server and not is_going and not is_serving(pod)
