"""What pods of our services want, and what nodes have, read from their objects. Pure.

Any author of an object may write nonsense: what makes no sense counts as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reconciler.api.benchmark_settings import settings_digest
from reconciler.api.fleetnode import DeviceMemory
from reconciler.api.nodelabels import COST_PER_HOUR, NodeLabels, archs_of
from reconciler.api.plain_json import parse_json
from reconciler.api.vendors import slice_bytes, vendor_of
from reconciler.fleet.quantisation import is_of_4_bits
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGER,
    NEEDS_ANNOTATION,
    SERVICE_LABEL,
)
from reconciler.kube.render.labels import COMPONENT_LABEL, SERVER
from reconciler.placement.nodefit import CandidateNode, PodDemand

ServiceKey = tuple[str, str]  # namespace, name


class MeasuredModel(NamedTuple):
    """What a measured speed is of, but its device and the engine's build: the digests of a model
    and of its settings, and the runtime."""

    model: str
    runtime: str
    settings: str


_OVER = ("Succeeded", "Failed")
_MOST_RESOURCE = 253 + 1 + 63  # characters of a resource's name, as Kubernetes has it


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What a service's Deployment says of its pods. `pool` is its FleetNode."""

    pool: str = ""
    int4: bool = False
    gpu_bytes: int | None = None
    measured: tuple[MeasuredModel, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a FleetNode states of its nodes."""

    name: str
    node_name: str | None = None
    selector: tuple[tuple[str, str], ...] = ()
    archs: frozenset[str] = frozenset()
    share: float = DeviceMemory().fraction
    cost: float | None = None

    def has(self, name: str, labels: Mapping[str, str]) -> bool:
        if self.node_name is not None:
            return self.node_name == name
        if not self.selector:
            return self.name == name
        return all(labels.get(key) == value for key, value in self.selector)


def service_key(pod: Mapping[str, Any]) -> ServiceKey | None:
    """The service that it serves; None: it is not a fleet's, or does something else."""
    if pod.get("apiVersion", "v1") != "v1" or pod.get("kind", "Pod") != "Pod":
        return None
    metadata = _dict(pod.get("metadata"))
    labels = _dict(metadata.get("labels"))
    is_ours = labels.get(MANAGED_BY_LABEL) == MANAGER and labels.get(COMPONENT_LABEL) == SERVER
    name, namespace = labels.get(SERVICE_LABEL), metadata.get("namespace", "default")
    are_texts = isinstance(name, str) and isinstance(namespace, str)
    return (namespace, name) if is_ours and are_texts and name else None


def pod_demand(
    pod: Mapping[str, Any], key: ServiceKey, service: ServiceFacts, pool: PoolFacts | None
) -> PodDemand:
    resource, gpus = _gpus(_dict(pod.get("spec")))
    demand = PodDemand(
        service="/".join(key),
        gpus=gpus,
        resource=resource,
        vendor=None if resource is None else vendor_of(resource),
        int4=service.int4,
        gpu_bytes=service.gpu_bytes,
    )
    return demand if pool is None else replace(demand, archs=pool.archs, share=pool.share)


def node_of(pod: Mapping[str, Any]) -> str | None:
    """Where a pod takes what it wants; None: nowhere yet, or nothing any more."""
    name = _dict(pod.get("spec")).get("nodeName")
    is_over = _dict(pod.get("status")).get("phase") in _OVER
    return name if isinstance(name, str) and name and not is_over else None


def service_facts(deployment: Mapping[str, Any]) -> ServiceFacts:
    annotations = _dict(_dict(deployment.get("metadata")).get("annotations"))
    inputs, needs = (
        _annotation(annotations, INPUTS_ANNOTATION),
        _annotation(annotations, NEEDS_ANNOTATION),
    )
    models = [m for m in _list(inputs.get("models")) if isinstance(m, dict)]
    on_devices = (taken for name, taken in needs.items() if name.startswith("device"))
    sizes = [taken[0] for taken in on_devices if isinstance(taken, list) and taken]
    settings, runtime = _dict(inputs.get("settings")), str(inputs.get("runtime"))
    return ServiceFacts(
        pool=str(_dict(inputs.get("pool")).get("name") or ""),
        int4=any(map(is_of_4_bits, models)),
        gpu_bytes=max((size for size in sizes if isinstance(size, int)), default=None),
        measured=tuple(
            MeasuredModel(
                model["sha256"], runtime, settings_digest(settings, str(model.get("name")))
            )
            for model in models
            if isinstance(model.get("sha256"), str)
        ),
    )


def pool_facts(document: Mapping[str, Any]) -> PoolFacts:
    """What a FleetNode states of its pool."""
    spec = _dict(document.get("spec"))
    pool, hardware = _dict(spec.get("kubernetes")), _dict(spec.get("hardware"))
    share = _figure(_dict(_dict(spec.get("memory")).get("devices")).get("fraction"))
    archs = [_dict(device).get("arch") for device in _list(hardware.get("devices"))]
    node_name = pool.get("nodeName")
    return PoolFacts(
        name=str(_dict(document.get("metadata")).get("name")),
        node_name=node_name if isinstance(node_name, str) else None,
        selector=tuple(sorted((k, str(v)) for k, v in _dict(pool.get("nodeSelector")).items())),
        archs=archs_of(archs),
        share=share or DeviceMemory().fraction,
        cost=_figure(spec.get("costPerHour")),
    )


def node_facts(
    node: Mapping[str, Any], pools: Mapping[str, PoolFacts], prefix: str
) -> CandidateNode:
    """Without its tenants. Of several pools that say what it costs, the first by name counts."""
    metadata = _dict(node.get("metadata"))
    name = str(metadata.get("name"))
    labels = _texts(metadata.get("labels"))
    annotations = _texts(metadata.get("annotations"))
    cost = _figure(annotations.get(prefix + COST_PER_HOUR))
    if cost is None:
        stated = (p.cost for p in pools.values() if p.cost is not None and p.has(name, labels))
        cost = next(stated, None)
    offered = _dict(_dict(node.get("status")).get("allocatable"))
    return CandidateNode(
        name,
        NodeLabels.read(labels, annotations, prefix),
        tuple(sorted((k, _whole(v)) for k, v in offered.items() if vendor_of(k))),
        cost=cost,
        slices=tuple(sorted((k, size) for k in offered if (size := slice_bytes(k, labels)))),
    )


def _gpus(spec: Mapping[str, Any]) -> tuple[str | None, int]:
    """The resource by which a pod asks for GPUs, and how many; by none: None."""
    amounts: dict[str, int] = {}
    for container in _list(spec.get("containers")):
        limits = _dict(_dict(_dict(container).get("resources")).get("limits"))
        for name, value in limits.items():
            if len(name) <= _MOST_RESOURCE and vendor_of(name):
                amounts[name] = amounts.get(name, 0) + _whole(value)
    return max(amounts.items(), key=lambda row: row[1], default=(None, 0))


def _annotation(annotations: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        return _dict(parse_json(str(annotations.get(name, "{}"))))
    except ValueError:
        return {}


def _figure(value: object) -> float | None:
    """A number from 0 on."""
    try:
        figure = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return figure if 0 <= figure < math.inf else None


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> dict[str, str]:
    return {key: text for key, text in _dict(value).items() if isinstance(text, str)}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
