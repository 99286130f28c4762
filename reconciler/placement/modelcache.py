"""Where the pods of a pool keep their models: FleetNode.spec.kubernetes.cache, understood. Pure.

ephemeral               each pod fetches its own, and loses it when it ends (the default)
host:/PATH              a folder of each node, which its pods share
claim:NAME[,RWX]        a claim that is there, in the service's namespace
pvc:SIZE[,CLASS][,RWX]  a claim that we make for each service; CLASS is a storage class
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService

Mode = Literal["RWO", "RWX"]
_MODES = ("RWO", "RWX")


@dataclass(frozen=True, slots=True)
class ModelCache:
    """`host` is a folder of the node, `claim` the name of an existing claim, `size` that of a claim
    that we create; all None: ephemeral. Only the cluster knows the mode of an existing claim: RWO
    unless stated."""

    host: str | None = None
    claim: str | None = None
    size: str | None = None
    storage_class: str | None = None
    mode: Mode = "RWO"

    @property
    def has_claim(self) -> bool:
        return self.claim is not None or self.size is not None


def model_cache(stated: str) -> ModelCache:
    """Parse a FleetNode's cache. The schema has checked its form."""
    form, _, rest = stated.partition(":")
    first, *others = rest.split(",")
    mode: Mode = "RWX" if "RWX" in others else "RWO"
    if form == "host":
        return ModelCache(host=rest)
    if form == "claim":
        return ModelCache(claim=first, mode=mode)
    if form == "pvc":
        classes = [word for word in others if word not in _MODES]
        return ModelCache(size=first, storage_class=classes[0] if classes else None, mode=mode)
    return ModelCache()


def cache_of(node: FleetNode) -> ModelCache:
    """The cache of a pool; ephemeral for a node with an agent."""
    return model_cache(node.spec.kubernetes.cache if node.spec.kubernetes else "")


def cache_for(service: InferenceService, node: FleetNode) -> ModelCache:
    """The cache of a service's pods: the pool's, unless the service names another claim or
    declines any. Nobody states the mode of its own claim."""
    stated, pool = service.spec.model_cache, cache_of(node)
    if stated.persistence == "Ephemeral":
        return ModelCache()
    if stated.claim_name is None or stated.claim_name == pool.claim:
        return pool
    return ModelCache(claim=stated.claim_name)


def is_shared(cache: ModelCache, node: FleetNode) -> bool:
    """Whether several pods of the pool can mount a claim at a time, wherever they run."""
    pool = node.spec.kubernetes
    spans_nodes = pool is not None and pool.node_name is None and pool.count > 1
    return cache.mode == "RWX" or not spans_nodes


def not_shared(service: InferenceService, node: FleetNode) -> str | None:
    """Why the replicas of a service cannot all mount the cache; None if they can."""
    scaling, pool = service.spec.autoscaling, node.spec.kubernetes
    replicas = service.spec.replicas if scaling is None else scaling.max_replicas
    cache = cache_for(service, node)
    if pool is None or replicas < 2 or not cache.has_claim or is_shared(cache, node):
        return None
    if cache != cache_of(node):
        return (
            f"{replicas} replicas over the {pool.count} nodes of {node.metadata.name} would mount"
            f" the claim {cache.claim} (modelCache.claimName); if its storage can be shared, write"
            f" `cache: claim:{cache.claim},RWX` on the FleetNode, or have one replica"
        )
    return (
        f"{replicas} replicas over the {pool.count} nodes of {node.metadata.name} would mount a"
        f" claim that one node at a time can mount (cache: {pool.cache}); add `,RWX` to it if its"
        " storage can be shared, or write `cache: ephemeral`, or have one replica"
    )


# Folders of a node that no pod of ours is given, whatever the Fleet lists: who may write there, or
# in what is above, has the machine.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys"),
    *("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin"),
    *("/var/lib/containerd", "/var/lib/containers", "/var/lib/cni", "/var/lib/docker"),
    *("/var/lib/etcd", "/var/lib/kubelet", "/var/lib/rancher", "/var/log", "/var/run"),
    *("/var/spool/cron",),
)


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def host_refused(node: FleetNode, allowed: Collection[str]) -> str | None:
    """Why pods may not mount the folder of a node that the pool states; None if they may."""
    host = cache_of(node).host
    if host is None:
        return None
    if any(_is_in(host, folder) or _is_in(folder, host) for folder in _SYSTEM):
        return (
            f"{node.metadata.name} keeps models in {host} of its nodes, which has files of the"
            " system: write a folder of its own, such as `cache: host:/var/lib/models`"
        )
    if host in allowed:
        return None
    return (
        f"{node.metadata.name} keeps models in {host} of its nodes, which the Fleet does not allow:"
        f" add hostCaches: [{host}] to its spec, or write another `cache`"
    )
