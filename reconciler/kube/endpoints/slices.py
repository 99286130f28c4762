"""A service of agent nodes in a cluster: a Service without a selector, and an EndpointSlice for
each node that runs it. Pure.

The reconciler always writes the Service. A slice has one writer at a time (heartbeat.writer): the
node's agent while its Lease is renewed, else the reconciler, from the agent's report over HTTP. If
the state of the node is unknown, the endpoints are withdrawn: a slice stays, and is not ready.
"""

from __future__ import annotations

import copy
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import GROUP, ObjectRef
from reconciler.kube.objects import (
    MANAGED_BY_LABEL,
    MANAGER,
    SERVICE_LABEL,
    Manifest,
    ObjectId,
)

if TYPE_CHECKING:
    from reconciler.core.observation import Instance
    from reconciler.loop.desired import Desired

SLICE_MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"  # keeps Kubernetes' own off it
SLICE_SERVICE_LABEL = "kubernetes.io/service-name"
NODE_LABEL = f"{GROUP}/node"
DEFAULT_PORT = 8080
PORT_NAME = "http"  # of the Service and of its slices: kube-proxy pairs them by it
_MOST_LABEL = 63  # characters of a label's value, and of a Service's name


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Why a service of this node has no endpoint in a cluster: a CamelCase word and a sentence."""

    reason: str
    message: str


def published(desired: Desired, cluster: str) -> tuple[Manifest, ...]:
    """The Services of what runs on agent nodes that name this cluster, sorted by ref. A suspended
    one keeps its name."""
    refs = {w.ref for w in desired.assignment.workloads if is_published(desired, w.node, cluster)}
    services = (desired.fleet.get(InferenceService, ref) for ref in sorted(refs))
    return tuple(service_manifest(service) for service in services if service is not None)


def is_published(desired: Desired, node: str, cluster: str) -> bool:
    """Whether the services of a node are published in that cluster."""
    declared = desired.fleet.get(FleetNode, ObjectRef("FleetNode", "", node))
    agent = declared.spec.agent if declared else None
    return agent is not None and cluster in agent.clusters


def service_manifest(service: InferenceService, writer: str = MANAGER) -> Manifest:
    """The name under which clients in the cluster find the service, wherever it runs."""
    name, endpoint = service.metadata.name, service.spec.endpoint
    port = {"name": PORT_NAME, "port": endpoint.port or DEFAULT_PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(name),
            "namespace": service.metadata.namespace,
            "labels": {MANAGED_BY_LABEL: writer, SERVICE_LABEL: name},
        },
        "spec": {"type": endpoint.type, "ports": [port]},
    }


def service_name(service: str) -> str:
    """Names of Services are DNS labels: dots become dashes."""
    return service.replace(".", "-")


def slice_name(service: str, node: str) -> str:
    """`chat-mac-07`. Two pairs may have the same name (`a-b` on `c`, `a` on `b-c`): see `is_of`."""
    return f"{service_name(service)}-{node}"


def slice_id(ref: ObjectRef, node: str) -> ObjectId:
    return ObjectId("discovery.k8s.io", "EndpointSlice", ref.namespace, slice_name(ref.name, node))


def is_of(live: Manifest, ref: ObjectRef, node: str) -> bool:
    """Whether a live slice is this service's on this node, by its labels and not only by its name.
    Other slices are never written."""
    labels = live["metadata"].get("labels", {})
    return (labels.get(SERVICE_LABEL), labels.get(NODE_LABEL)) == (ref.name, node)


def slice_of(instance: Instance, writer: str = MANAGER) -> Manifest | Unpublished:
    """The slice of one service on its node, written by `writer`. The address is the one that its
    process was started to listen on."""
    ref, node = instance.ref, instance.target.partition("/")[2]
    host = _listens_on(instance)
    if why := _why_not(ref, node, host, instance.port):
        return why
    ready = instance.ready and not instance.gone
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(ref.name, node),
            "namespace": ref.namespace,
            "labels": {
                SLICE_SERVICE_LABEL: service_name(ref.name),
                SLICE_MANAGED_BY_LABEL: writer,
                MANAGED_BY_LABEL: writer,
                SERVICE_LABEL: ref.name,
                NODE_LABEL: node,
            },
        },
        "addressType": f"IPv{ipaddress.ip_address(host).version}",
        "endpoints": [{"addresses": [host], "conditions": _conditions(ready)}],
        "ports": [{"name": PORT_NAME, "port": instance.port, "protocol": "TCP"}],
    }


def stale_slices(live: Iterable[Manifest], nodes: Iterable[str]) -> tuple[Manifest, ...]:
    """Slices of silent nodes that still receive clients, changed to not ready. Each is the whole
    object with its resourceVersion (a replace), so that an agent that comes back meanwhile wins."""
    silent = frozenset(nodes)
    return tuple(
        _withdrawn(manifest)
        for manifest in live
        if manifest["metadata"].get("labels", {}).get(NODE_LABEL) in silent and _is_served(manifest)
    )


def unroutable(host: str) -> str | None:
    """Why clients in a cluster cannot reach a node by that address; None if they may."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{host} is not an IP address"
    for kind in ("loopback", "unspecified", "link_local", "multicast"):
        if getattr(address, f"is_{kind}"):
            return (
                f"{host} is a {kind.replace('_', '-')} address: it cannot be reached from elsewhere"
            )
    return None


def _why_not(ref: ObjectRef, node: str, host: str, port: int | None) -> Unpublished | None:
    if why := unroutable(host):
        return Unpublished(
            "NotExposed",
            f"{why}; state spec.agent.expose (open or key) and spec.agent.hostIP on FleetNode"
            f" {node}",
        )
    if len(ref.name) > _MOST_LABEL or len(node) > _MOST_LABEL:
        return Unpublished(
            "NameTooLong",
            f"names of services and nodes in a cluster have at most {_MOST_LABEL} characters",
        )
    if port is None:
        return Unpublished("NoPort", f"it has no port on {node} yet")
    return None


def _listens_on(instance: Instance) -> str:
    """`Workload.inputs` omits it if it is loopback."""
    listen = instance.inputs.get("listen") or {}
    return str(listen.get("host", "127.0.0.1"))


def _conditions(ready: bool) -> dict[str, bool]:
    # Not `serving` either: kube-proxy sends clients to terminating endpoints that serve, if there
    # is nothing else
    # (https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions).
    return {"ready": ready, "serving": ready, "terminating": False}


def _is_served(live: Manifest) -> bool:
    """Unset counts as ready."""
    conditions = (endpoint.get("conditions") or {} for endpoint in live.get("endpoints") or ())
    return any(c.get("ready") is not False or c.get("serving") is not False for c in conditions)


def _withdrawn(live: Manifest) -> Manifest:
    changed: dict[str, Any] = copy.deepcopy(dict(live))
    changed["metadata"].pop("managedFields", None)
    for endpoint in changed["endpoints"]:
        endpoint["conditions"] = _conditions(ready=False)
    return changed
