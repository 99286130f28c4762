"""Pods on a pool of equal cluster nodes: their inputs, and whether the pool can hold them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod

from reconciler.api.fleetnode import FleetNode, KubernetesPool
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.api.quantity import show_bytes
from reconciler.api.vendors import VENDORS
from reconciler.capacity.admission import Admission, Candidate, Sized
from reconciler.capacity.parts import asks_for_slice, replicas, sharers
from reconciler.capacity.pools import pools, spelled
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import NodePool
from reconciler.memo import Memo, Same
from reconciler.placement.images import no_image
from reconciler.placement.modelcache import host_refused, not_shared
from reconciler.placement.names import object_name, unusable_name
from reconciler.runtimes.runtime import Runtime

DEFAULT_CLUSTER = "default"  # of a pool without a cluster, where no --cluster is given
DEFAULT_PORT = 8080  # of a service in a cluster without a stated port
IMAGE_VARIABLE = "DEFAULT_BACKEND_IMAGE"  # the keys of Fleet.defaults
CACHE_VARIABLE = "MODEL_CACHE_PATH"


def cluster_of(node: FleetNode) -> str | None:
    """The cluster that a FleetNode is a pool of; None if it is a machine with an agent."""
    pool = node.spec.kubernetes
    return None if pool is None else pool.cluster or DEFAULT_CLUSTER


@dataclass
class InCluster:
    """The same fleet, with that cluster for pools that name none. One without any FleetNode, as
    those are that were written for a cluster alone, has the cluster as its only one, of which
    nothing is known.

    The same FleetNode always gives the same object: caches of placement and rendering compare nodes
    by identity.
    """

    cluster: str
    _made: Memo[ObjectRef, FleetNode] = field(default_factory=Memo)

    def __call__(self, fleet: Fleet) -> Fleet:
        named = {
            node.ref: self._made.find(node.ref, (Same(node),), partial(self._named, node, pool))
            for node in fleet.all(FleetNode)
            if (pool := node.spec.kubernetes) and pool.cluster is None
        }
        self._made.keep(named)
        if not named and not fleet.all(FleetNode):
            named = {self._whole.ref: self._whole}
        return replace(fleet, objects={**fleet.objects, **named}) if named else fleet

    @cached_property
    def _whole(self) -> FleetNode:
        """The cluster itself."""
        return FleetNode.model_validate(
            {
                "apiVersion": API_VERSION,
                "kind": "FleetNode",
                "metadata": {"name": self.cluster},
                "spec": {"kubernetes": {"cluster": self.cluster}},
            }
        )

    def _named(self, node: FleetNode, pool: KubernetesPool) -> FleetNode:
        named = pool.model_copy(update={"cluster": self.cluster})
        return node.model_copy(update={"spec": node.spec.model_copy(update={"kubernetes": named})})


def target_of(node: FleetNode) -> str:
    """The target that runs what is placed there."""
    cluster = cluster_of(node)
    return f"node/{node.metadata.name}" if cluster is None else f"cluster/{cluster}"


def pool_of(
    node: FleetNode, pool: KubernetesPool, service: InferenceService, models: Iterable[Model]
) -> NodePool:
    """What pods need to know about their nodes."""
    accelerator = accelerator_of(node) or _wanted(service, models)
    selector = dict(sorted(pool.node_selector.items()))
    return NodePool(accelerator, selector, pool.node_name, pool.cache)


def _wanted(service: InferenceService, models: Iterable[Model]) -> str | None:
    """The kind of device that its Models need, where nothing is stated of the nodes; NVIDIA's where
    only a number of devices is."""
    stated = (model.spec.hardware.accelerator for model in models)
    return next(filter(None, stated), None) or (
        "cuda" if "devices" in service.spec.model_fields_set else None
    )


def accelerator_of(node: FleetNode) -> str | None:
    """The first kind of device that it states, `cpu` if it states that it has none; None if its
    hardware is not stated."""
    hardware = node.spec.hardware
    for device in hardware.devices:
        if vendor := VENDORS.get(device.vendor or ""):
            return vendor.accelerator
    return "cpu" if "memory" in hardware.model_fields_set and not hardware.devices else None


def image_of(
    service: InferenceService, runtime: Runtime, node: FleetNode, fleet: Fleet
) -> str | None:
    """The container image that the fleet, else this process states; None for the runtime's own."""
    image, _ = _stated_image(service, runtime, node, fleet)
    return image


def image_stated_by(
    service: InferenceService, runtime: Runtime, node: FleetNode, fleet: Fleet
) -> str:
    """Who states it: service, Fleet, the variable of this process, or our table: default."""
    _, by = _stated_image(service, runtime, node, fleet)
    return by


def _stated_image(
    service: InferenceService, runtime: Runtime, node: FleetNode, fleet: Fleet
) -> tuple[str | None, str]:
    """(image, who states it). The variable's is one image, so of one runtime: it is for services
    that leave open which, on pools that do."""
    if service.spec.image:
        return service.spec.image, "service"
    of_fleet = fleet.policy.images.get(runtime.name, {}).get(accelerator_of(node) or "cpu")
    if of_fleet is not None:
        return of_fleet, "Fleet"
    image = fleet.defaults.get(IMAGE_VARIABLE)
    if image is not None and (service.spec.runtime, node.spec.default_runtime) == (None, None):
        return image, IMAGE_VARIABLE
    return None, "default"


def no_pods(
    service: InferenceService, node: FleetNode, runtime: Runtime, fleet: Fleet
) -> tuple[str, str, str] | None:
    """(rule, field, message) of why the pool cannot run pods of the service; None if it can."""
    if why := too_many_devices(service, node):
        return "NodeCapability", "spec.devices", why
    if service.spec.main_gpu >= max(service.spec.devices, 1):
        why = "pods see the devices alone that they ask for, counted from 0; remove it"
        return "NodeCapability", "spec.mainGPU", why
    if named := unusable_name(service.ref):
        return "ObjectName", *named
    if why := not_shared(service, node):
        return "CacheNotShared", "spec.replicas", why
    if why := host_refused(node, fleet.policy.host_caches):
        return "HostCacheRefused", "spec.placement", why
    refs = (ObjectRef("Model", service.metadata.namespace, name) for name in service.model_names)
    models = [model for ref in refs if (model := fleet.get(Model, ref))]
    stated = image_of(service, runtime, node, fleet)
    if why := no_image(runtime.name, stated, accelerator_of(node), models):
        return "NodeCapability", "spec.runtime", why
    return None


def name_conflicts(
    placed: Iterable[tuple[FleetNode, Candidate]],
) -> Mapping[ObjectRef, str]:
    """Services whose objects would have the same names in the same namespace of a cluster, each
    with the reason. All of them are refused, so that none takes over the objects of a running
    one."""
    owners: defaultdict[tuple[str, str, str], set[ObjectRef]] = defaultdict(set)
    for node, candidate in placed:
        ref = candidate.service.ref
        for cluster in _clusters(node):
            owners[cluster, ref.namespace, object_name(ref)].add(ref)
    conflicts = {}
    for (cluster, _, name), refs in owners.items():
        for ref in refs if len(refs) > 1 else ():
            others = ", ".join(sorted(other.label for other in refs - {ref}))
            conflicts[ref] = (
                f"its objects in cluster {cluster} would be called {name}, as those of {others}"
                " would; give one of them another name"
            )
    return conflicts


def _clusters(node: FleetNode) -> tuple[str, ...]:
    """The clusters in which the services of a node have objects."""
    cluster = cluster_of(node)
    if cluster is not None:
        return (cluster,)
    return node.spec.agent.clusters if node.spec.agent else ()


def too_many_devices(service: InferenceService, node: FleetNode) -> str | None:
    """Why no node of the pool has the devices that one pod needs."""
    stated = len(node.spec.hardware.devices)
    if not stated or service.spec.devices <= stated:
        return None
    return (
        f"a pod wants {service.spec.devices} devices, and a node of {node.metadata.name} has"
        f" {stated}"
    )


def overfull(admissions: Iterable[Admission]) -> Iterator[Finding]:
    """A warning for a pool that cannot hold all its pods at once: Kubernetes lets some wait."""
    for admission in admissions:
        node, pool = admission.node, admission.node.spec.kubernetes
        if pool is None:
            continue
        running = [s for s in admission.admitted if not s.workload.suspended]
        findings = [*_devices(node, pool, running), *_memory(node, pool, running)]
        if findings:
            message = f"{'; '.join(findings)}: pods beyond that wait (Pending)"
            yield Finding("PoolFull", node.ref, "spec.kubernetes", message)
        yield from _on_one_device(node, running)


def _devices(node: FleetNode, pool: KubernetesPool, running: list[Sized]) -> Iterator[str]:
    factors = [pool.count, len(node.spec.hardware.devices)]
    factors += [shared] if (shared := replicas(node)) else []
    has = prod(factors)
    whole = (s for s in running if _is_counted(node, s.candidate.service))
    wanted = sum(sized.workload.devices * sized.pods for sized in whole)
    if has and wanted > has:
        yield (
            f"its services want {wanted} devices at most, and"
            f" {' x '.join(map(str, factors))} = {has} are there"
        )


def _is_counted(node: FleetNode, service: InferenceService) -> bool:
    """Whether a pod takes of as many devices as are stated: not of slices of them, nor where
    nobody says how many pods share one."""
    return not asks_for_slice(node, service) and sharers(node, service) is not None


def _on_one_device(node: FleetNode, running: list[Sized]) -> Iterator[Finding]:
    """Pods that share devices in turns, where the largest that may be on one do not fit it
    together. Nothing divides its memory among them."""
    budget = min((p.budget_bytes for p in pools(node) if p.name.startswith("device")), default=0)
    sharing = []
    for sized in running if budget else ():
        most = sharers(node, sized.candidate.service)
        taken = max(
            (n.bytes for n in sized.workload.needs if n.pool.startswith("device")), default=0
        )
        if most != 1 and taken:
            sharing += [(taken, sized.workload.ref, most)] * sized.pods
    sharing.sort(key=lambda pod: (-pod[0], pod[1]))
    most = max((most or len(sharing) for _, _, most in sharing), default=0)
    largest = sharing[:most]
    together = sum(taken for taken, _, _ in largest)
    if len(largest) > 1 and together > budget:
        named = ", ".join(sorted({ref.label for _, ref, _ in largest}))
        message = (
            f"{len(largest)} pods that may share a device ({named}) take {show_bytes(together)} of"
            f" it together, and it has {show_bytes(budget)} for models: Kubernetes may put them on"
            " the same one, where the last to start fails"
        )
        yield Finding("DeviceShared", node.ref, "spec.kubernetes", message)


def _memory(node: FleetNode, pool: KubernetesPool, running: list[Sized]) -> Iterator[str]:
    for stated in pools(node):
        wanted = sum(
            need.bytes * sized.pods
            for sized in running
            for need in sized.workload.needs
            if need.pool == stated.name and not need.pool.startswith("device")
        )
        if wanted > pool.count * stated.budget_bytes:
            has = show_bytes(pool.count * stated.budget_bytes)
            yield (
                f"its services want {show_bytes(wanted)} of {spelled(stated.name)} at most, and"
                f" {pool.count} x {show_bytes(stated.budget_bytes)} = {has} are there"
            )
