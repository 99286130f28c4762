"""Keeps the facts of a cluster current, by watches."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.api.benchmark import BenchmarkResult, read_config_map
from reconciler.api.errors import BenchmarkError
from reconciler.api.meta import GROUP
from reconciler.api.nodelabels import LABELER, METRICS_PORT
from reconciler.kube.extender.demand import (
    PoolFacts,
    ServiceFacts,
    node_facts,
    node_of,
    pod_demand,
    pool_facts,
    service_facts,
    service_key,
)
from reconciler.kube.extender.facts import ClusterFacts, MeasuredSpeeds
from reconciler.kube.informer.cache import InformerCache
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    MANAGED_BY_LABEL,
    MANAGER,
    NEEDS_ANNOTATION,
    SYSTEM_NAMESPACE,
    Manifest,
    ObjectId,
)
from reconciler.memo import Memo
from reconciler.placement.nodefit import CandidateNode, PodDemand

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.object_set import ObjectSet

_NODES = (SERVED_KINDS["", "Node"], SERVED_KINDS[GROUP, "FleetNode"])
_OURS = tuple(SERVED_KINDS[row] for row in (("", "Pod"), ("apps", "Deployment"), ("", "ConfigMap")))
_COALESCE_S = 0.25
_BENCHMARK = "bench-"  # how the ConfigMap of a measurement is called

T = TypeVar("T")
_log = logging.getLogger(__name__)


class FactsWatch:
    """`current` is None until everything was listed once. What the cluster does not say stays as
    it was. `changed` is called from a thread of the watch."""

    def __init__(self, api: ApiServer, prefix: str, changed: Callable[[], None]) -> None:
        self.current: ClusterFacts | None = None
        self.labelers: Mapping[str, str] = {}  # node -> URL of its metrics
        self._prefix = prefix
        self._changed = changed
        self._lock = threading.Lock()
        self._pools: Mapping[str, PoolFacts] = {}
        self._of_nodes = Memo[ObjectId, CandidateNode]()
        self._of_pools = Memo[ObjectId, PoolFacts]()
        self._of_services = Memo[ObjectId, ServiceFacts]()
        self._results = Memo[ObjectId, BenchmarkResult | None]()
        follow = partial(InformerCache, api, coalesce_s=_COALESCE_S, changed=self._look)
        ours = f"{MANAGED_BY_LABEL}={MANAGER}"
        labelers = f"app.kubernetes.io/name={LABELER}"  # anybody's label, but in our namespace
        self._nodes = follow(kinds=_NODES, selector="", slim=partial(_slim, prefix))
        self._ours = follow(kinds=_OURS, selector=ours, slim=partial(_slim, prefix))
        self._labelers = follow(
            kinds=_OURS[:1],
            selector=labelers,
            namespace=SYSTEM_NAMESPACE,
            slim=partial(_slim, prefix),
        )

    def start(self) -> None:
        for mirror in (self._nodes, self._ours, self._labelers):
            mirror.start()

    def stop(self) -> None:
        for mirror in (self._nodes, self._ours, self._labelers):
            mirror.stop()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it is not current."""
        problems = {**self._nodes.problems, **self._ours.problems}
        return tuple(str(problem) for problem in problems.values())

    def _look(self) -> None:
        with self._lock:
            nodes, ours = self._nodes.objects(), self._ours.objects()
            labelers = self._labelers.objects()
            if labelers is not None:
                self.labelers = dict(filter(None, map(_metrics_url, labelers.values())))
            if nodes is None or ours is None:
                return
            self.current = self._facts(nodes, ours)
        self._changed()

    def _facts(self, nodes: ObjectSet, ours: ObjectSet) -> ClusterFacts:
        for memo, there in ((self._of_nodes, nodes), (self._of_pools, nodes)):
            memo.keep(there)
        for kept in (self._of_services, self._results):
            kept.keep(ours)
        pools = self._read_pools(nodes)
        services = {
            (oid.namespace, ref.name): self._of_services.find(
                oid, (ours.state(oid),), partial(_read, service_facts, ours, oid)
            )
            for oid in ours
            if oid.kind == "Deployment" and (ref := ours.service(oid)) is not None
        }
        alone = ClusterFacts(services=services, pools=pools)
        tenants = _tenants(ours, alone)
        known = {
            oid.name: self._of_nodes.find(
                oid,
                (nodes.state(oid), pools),
                partial(_read, node_facts, nodes, oid, pools, self._prefix),
            )
            for oid in nodes
            if oid.kind == "Node"
        }
        here = {n: replace(f, tenants=tenants[n]) if n in tenants else f for n, f in known.items()}
        return replace(alone, nodes=here, tenants=tenants, speeds=self._speeds(ours))

    def _read_pools(self, nodes: ObjectSet) -> Mapping[str, PoolFacts]:
        """The same object while they are the same: nodes are compared by it."""
        pools = {
            oid.name: self._of_pools.find(
                oid, (nodes.state(oid),), partial(_read, pool_facts, nodes, oid)
            )
            for oid in sorted(nodes)
            if oid.kind == "FleetNode"
        }
        if pools != self._pools:
            self._pools = pools
        return self._pools

    def _speeds(self, ours: ObjectSet) -> MeasuredSpeeds:
        wanted = [o for o in ours if o.kind == "ConfigMap" and o.name.startswith(_BENCHMARK)]
        results = (
            (
                oid.namespace,
                self._results.find(
                    oid, (ours.state(oid),), partial(_read, self._result, ours, oid)
                ),
            )
            for oid in wanted
        )
        return MeasuredSpeeds((namespace, result) for namespace, result in results if result)

    def _result(self, config_map: Manifest) -> BenchmarkResult | None:
        try:
            return read_config_map(config_map["metadata"]["name"], config_map.get("data") or {})
        except BenchmarkError as error:
            _log.warning("%s; its speed counts as not known", error)
            return None


def _read(read: Callable[..., T], objects: ObjectSet, oid: ObjectId, *more: object) -> T:
    return read(objects[oid], *more)


def _tenants(ours: ObjectSet, facts: ClusterFacts) -> dict[str, tuple[PodDemand, ...]]:
    """Our pods that are on a node."""
    tenants: defaultdict[str, list[PodDemand]] = defaultdict(list)
    for oid in sorted(ours):
        if oid.kind != "Pod":
            continue
        pod = ours[oid]
        node, key = node_of(pod), service_key(pod)
        if node is not None and key is not None:
            service, pool = facts.service(key)
            tenants[node].append(pod_demand(pod, key, service, pool))
    return {node: tuple(pods) for node, pods in tenants.items()}


def _metrics_url(pod: Manifest) -> tuple[str, str] | None:
    """(node, URL) of a labeler's metrics."""
    node, address = node_of(pod), (pod.get("status") or {}).get("podIP")
    ports = [p for c in pod["spec"].get("containers") or () for p in c.get("ports") or ()]
    port = next((p["containerPort"] for p in ports if p.get("name") == METRICS_PORT), None)
    if node is None or not address or port is None:
        return None
    host = f"[{address}]" if ":" in address else address
    return node, f"http://{host}:{port}/metrics"


def _slim(prefix: str, item: dict[str, Any]) -> Manifest:
    """What is asked of an object of this kind: a node's conditions change all the time."""
    metadata = item["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(prefix) or key in (INPUTS_ANNOTATION, NEEDS_ANNOTATION)
    }
    made: dict[str, Any] = {"apiVersion": item["apiVersion"], "kind": item["kind"]}
    made["metadata"] = {**kept, "annotations": annotations}
    part = _PARTS.get(item["kind"])
    return {**made, **part(item)} if part else made


def _of_pod(item: Mapping[str, Any]) -> dict[str, Any]:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    parts = ("resources", "ports")
    containers = [
        {part: container[part] for part in parts if part in container}
        for container in spec.get("containers") or ()
    ]
    return {
        "spec": {"nodeName": spec.get("nodeName"), "containers": containers},
        "status": {key: status[key] for key in ("phase", "podIP") if key in status},
    }


def _of_node(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": {"allocatable": (item.get("status") or {}).get("allocatable") or {}}}


def _of_config_map(item: Mapping[str, Any]) -> dict[str, Any]:
    is_result = str(item["metadata"]["name"]).startswith(_BENCHMARK)
    return {"data": item.get("data") or {}} if is_result else {}


_PARTS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "Node": _of_node,
    "FleetNode": lambda item: {"spec": item.get("spec") or {}},
    "Pod": _of_pod,
    "ConfigMap": _of_config_map,
}
