"""A Mac beside a cluster, for tests: its objects in the cluster, and the words of the reconciler.

beside = BesideCluster.install(cluster, tiny)
beside.declare("chat")
beside.say("r1", "chat")                    # FleetNode.status.desired, as the reconciler writes
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from reconciler.api.digest import digest
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.crd.definitions import crds
from reconciler.kube.endpoints.heartbeat import lease_name
from reconciler.kube.endpoints.slices import unroutable
from reconciler.kube.objects import SYSTEM_NAMESPACE
from reconciler.runtimes import RUNTIMES
from tests.support.cluster import Cluster
from tests.support.wait import wait_for

NODE = "mac"


def own_address() -> str:
    """An IPv4 address of this machine that is not loopback: an API server takes no other in an
    EndpointSlice."""
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name == "AF_INET" and unroutable(address.address) is None
    ]
    assert found, "this machine has no address but loopback: bring up a network interface"
    return found[0]


@dataclass(frozen=True, slots=True)
class BesideCluster:
    """The definitions, the node and the model `tiny` in a cluster."""

    cluster: Cluster
    gguf: Path

    @classmethod
    def install(cls, cluster: Cluster, gguf: Path, **model_hardware: Any) -> Self:
        """With the definitions, where nobody has installed them."""
        made = cls(cluster, gguf)
        if not cluster.keeps:
            made.define()
            cluster.namespace(SYSTEM_NAMESPACE)
        made.put_node()
        made.put_model(**model_hardware)
        return made

    def define(self) -> None:
        """The CustomResourceDefinitions, until they are served."""
        self.cluster.apply(*crds(RUNTIMES))
        names = [f"crd/{made['metadata']['name']}" for made in crds(RUNTIMES)]
        self.cluster.wait("--for=condition=Established", *names)

    def undefine(self) -> None:
        """They are deleted, and all their objects with them."""
        names = [f"crd/{made['metadata']['name']}" for made in crds(RUNTIMES)]
        self.cluster.kubectl("delete", *names, "--wait=true")

    def put_node(self, name: str = NODE, **agent: Any) -> None:
        agent = agent or {"hostIP": own_address(), "expose": "open", "clusters": ["test"]}
        hardware = {"memory": "16Gi", "devices": [{"vendor": "Apple", "memory": "unified"}]}
        self.cluster.apply(_object("FleetNode", name, {"agent": agent, "hardware": hardware}))

    def put_model(self, *, namespace: str = "default", **hardware: Any) -> None:
        spec: dict[str, Any] = {"source": f"file://{self.gguf}"}
        spec |= {"hardware": hardware} if hardware else {}
        self.cluster.apply(_object("Model", "tiny", spec, namespace))

    def declare(self, name: str, namespace: str = "default", **spec: Any) -> None:
        spec = {"modelRef": "tiny", "contextSize": 256, **spec}
        self.cluster.apply(_object("InferenceService", name, spec, namespace))

    def say(self, revision: str, *names: str) -> None:
        """What the reconciler writes for the node: the complete list of what is to run there."""
        services = [{"namespace": "default", "name": name} for name in names]
        desired = {"revision": revision, "digest": digest(services), "services": services}
        patch = json.dumps({"status": {"desired": desired}})
        self.cluster.kubectl(
            "patch", "fleetnode", NODE, "--subresource=status", "--type=merge", "-p", patch
        )

    def slice(self, service: str, node: str = NODE) -> dict[str, Any] | None:
        """The EndpointSlice of a service on the node, or None."""
        found = self.cluster.json("get", "endpointslices", "-A", "-l", f"{GROUP}/node={node}")
        names = {item["metadata"]["name"]: item for item in found["items"]}
        return names.get(f"{service}-{node}")

    def conditions(self, service: str) -> dict[str, Any]:
        found = self.slice(service)
        return dict(found["endpoints"][0]["conditions"]) if found else {}

    def wait_published(self, service: str, *, ready: bool = True) -> dict[str, Any]:
        what = f"a slice of {service} with ready={ready}"
        wait_for(lambda: self.conditions(service).get("ready") is ready, what)
        found = self.slice(service)
        assert found
        return found

    def wait_withdrawn(self, service: str) -> None:
        wait_for(lambda: self.slice(service) is None, f"no slice of {service}")

    def instance(self, service: str, node: str = NODE) -> dict[str, Any]:
        """The node's entry in the service's status; empty where there is none."""
        found = self.cluster.json("get", "inferenceservice", service)
        entries = found.get("status", {}).get("instances", [])
        return next((dict(e) for e in entries if e["node"] == node), {})

    def observed(self) -> dict[str, Any]:
        status = self.cluster.json("get", "fleetnode", NODE).get("status", {})
        return dict(status.get("observed", {}))

    def lease(self) -> dict[str, Any] | None:
        found = self.cluster.json("get", "leases", "-n", SYSTEM_NAMESPACE)
        named = {item["metadata"]["name"]: item for item in found["items"]}
        return named.get(lease_name(NODE))


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
