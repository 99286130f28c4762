"""Whether one node of a cluster can run a pod of a service, by the node's labels. Pure.

A label that is absent is not known, and holds nothing back: Kubernetes itself counts GPUs and the
node's own memory, and the engine has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.api.fleetnode import DeviceMemory
from reconciler.api.nodelabels import NodeLabels
from reconciler.api.quantity import show_bytes

_UNKNOWN = NodeLabels()


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What a pod wants of its node. `archs` are those that the fleet states for the pool; empty:
    it states none. `gpu_bytes` is our estimate for each GPU; None: not known, or of the machine's
    own memory."""

    service: str  # NAMESPACE/NAME
    gpus: int = 0
    resource: str | None = None  # by which it asks for them, such as nvidia.com/gpu
    vendor: str | None = None
    archs: frozenset[str] = frozenset()
    int4: bool = False  # its model's weights are of 4 bits
    gpu_bytes: int | None = None
    share: float = DeviceMemory().fraction  # of a GPU's memory that is for models

    @property
    def namespace(self) -> str:
        return self.service.partition("/")[0]


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """`offered`: how many of each resource for GPUs it has; `slices`: the memory of those that are
    slices of GPUs (MIG); `tenants`: our pods there."""

    name: str
    labels: NodeLabels = _UNKNOWN
    offered: tuple[tuple[str, int], ...] = ()
    tenants: tuple[PodDemand, ...] = ()
    cost: float | None = None
    slices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeMisfit:
    """Why it cannot. `lasts`: also if nothing else ran there."""

    reason: str
    lasts: bool = True


def node_misfit(demand: PodDemand, node: CandidateNode) -> NodeMisfit | None:
    """None: nothing that is known speaks against it."""
    if not demand.gpus:
        return None
    labels = _about(demand, node)
    wants, name = demand.service, node.name
    if None not in (demand.vendor, labels.vendor) and demand.vendor != labels.vendor:
        return NodeMisfit(
            f"node {name} has no GPU of {demand.vendor}, which {wants} wants, but of"
            f" {labels.vendor}"
        )
    if demand.archs and labels.arch is not None and labels.arch not in demand.archs:
        stated = " or ".join(sorted(demand.archs))
        return NodeMisfit(f"node {name} has {labels.arch}; the pool of {wants} states {stated}")
    if demand.int4 and labels.int4 is False:
        arch = labels.arch or "its GPU"
        return NodeMisfit(
            f"node {name} has no kernels for weights of 4 bits ({arch}), which {wants} has"
        )
    return _memory(demand, node, labels)


def _about(demand: PodDemand, node: CandidateNode) -> NodeLabels:
    """What its labels say of the GPUs that the pod would get. On a node with those of two vendors
    they are about one of them."""
    labels = node.labels
    offers = any(name == demand.resource and count for name, count in node.offered)
    is_other = demand.vendor is not None and labels.vendor not in (None, demand.vendor)
    return _UNKNOWN if is_other and offers else labels


def _memory(demand: PodDemand, node: CandidateNode, labels: NodeLabels) -> NodeMisfit | None:
    a_slice = dict(node.slices).get(demand.resource or "")
    has = labels.vram if a_slice is None else a_slice
    if demand.gpu_bytes is None or has is None or (labels.unified and a_slice is None):
        return None
    budget = int(has * demand.share)
    needs, wants = show_bytes(demand.gpu_bytes), demand.service
    if demand.gpu_bytes > budget:
        what = "a GPU" if a_slice is None else str(demand.resource)
        basis = f"{show_bytes(has)} x {demand.share:g} = {show_bytes(budget)}"
        return NodeMisfit(f"{wants} needs {needs} of {what}, and node {node.name} has {basis}")
    free = None if a_slice else _free_of_shared(demand, node, labels.count, budget)
    if free is None or len(free) < demand.gpus or free[demand.gpus - 1] >= demand.gpu_bytes:
        return None
    left = show_bytes(max(free[demand.gpus - 1], 0))
    others = ", ".join(sorted({tenant.service for tenant in node.tenants}))
    return NodeMisfit(
        f"{wants} needs {needs} of a GPU, and node {node.name} has {left} left beside {others}",
        lasts=False,
    )


def _free_of_shared(
    demand: PodDemand, node: CandidateNode, count: int | None, budget: int
) -> list[int] | None:
    """Bytes left of each GPU, the most first, where several pods share one; None: they do not, so
    that Kubernetes knows which are free. Pods are taken to be spread as evenly as they can be. What
    a pod of another namespace says to need is its author's word: it takes at most its share."""
    offered = next((amount for name, amount in node.offered if name == demand.resource), 0)
    if not count or offered <= count:
        return None
    free = [budget] * count
    for tenant in node.tenants:
        if tenant.resource != demand.resource or tenant.gpu_bytes is None or tenant.gpus < 1:
            continue
        taken, on = tenant.gpu_bytes, min(tenant.gpus, count)
        if tenant.namespace != demand.namespace:
            taken = min(taken, budget * count * tenant.gpus // (offered * on))
        for i in range(on):
            free[i] -= taken
        free.sort(reverse=True)
    return free
