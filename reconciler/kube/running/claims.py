"""Whether a claim that a pool names could be mounted by several nodes, and the fleet says no."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reconciler.api.problem import Finding
from reconciler.kube.client.errors import Denied
from reconciler.kube.objects import ObjectId
from reconciler.placement.modelcache import cache_of, is_shared
from reconciler.placement.pods import cluster_of

if TYPE_CHECKING:
    from reconciler.api.fleetnode import FleetNode
    from reconciler.fleet.workload import Workload
    from reconciler.kube.client.api import ApiServer

_MANY = "ReadWriteMany"


def shared_unsaid(
    api: ApiServer, nodes: Iterable[FleetNode], workloads: Iterable[Workload]
) -> Iterator[Finding]:
    """Each pool of that cluster with such a claim, once. Raises ClusterError."""
    namespaces: dict[str, set[str]] = {}
    for workload in workloads:
        namespaces.setdefault(workload.node, set()).add(workload.ref.namespace)
    for node in nodes:
        name = cache_of(node).claim
        if name is None or is_shared(cache_of(node), node) or cluster_of(node) != api.name:
            continue
        for namespace in sorted(namespaces.get(node.metadata.name, ())):
            if _MANY in _modes(api, namespace, name):
                yield Finding(
                    "ClaimIsShared", node.ref, "spec.kubernetes.cache", _message(namespace, name)
                )
                break


def _message(namespace: str, name: str) -> str:
    return (
        f"several nodes can mount claim {name} of namespace {namespace} ({_MANY}), and only one"
        f" pod at a time is given it: write `cache: claim:{name},RWX`, and a Job fetches each model"
        " once for all"
    )


def _modes(api: ApiServer, namespace: str, name: str) -> Iterable[object]:
    """None are known of a claim that is not there, or that may not be read."""
    try:
        claim = api.get(ObjectId("", "PersistentVolumeClaim", namespace, name))
    except Denied:
        return ()
    return ((claim or {}).get("spec") or {}).get("accessModes") or ()
