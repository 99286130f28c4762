"""The fleet's definitions in a real cluster, and objects of its kinds there."""

from __future__ import annotations

import json
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.crd.definitions import crds
from reconciler.kube.objects import OWNED_KINDS, SYSTEM_NAMESPACE
from reconciler.runtimes import RUNTIMES
from tests.support.cluster import Cluster


def install_kinds(cluster: Cluster) -> None:
    """The definitions, served, and the reconciler's namespace; whoever had made some of them."""
    names = [f"crd/{OWNED_KINDS[GROUP, kind].plural}.{GROUP}" for kind in KINDS]
    texts = [json.dumps(made) for made in crds(RUNTIMES)]
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    cluster.kubectl(*apply, text="\n---\n".join(texts))
    cluster.wait("--for=condition=Established", *names)
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    cluster.apply(made)


def remove_kinds(cluster: Cluster) -> None:
    """Every definition, and with them every object of ours."""
    names = [f"{OWNED_KINDS[GROUP, kind].plural}.{GROUP}" for kind in KINDS]
    cluster.kubectl("delete", "crd", *names)


def thing(kind: str, name: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """A document of the fleet, as its author writes it."""
    namespaced = KINDS[kind].namespaced
    metadata = {"name": name} | ({"namespace": "default"} if namespaced else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec or {}}


def small(*services: str, on: str = "l4") -> list[dict[str, Any]]:
    """A Fleet, a pool, a model and services that run there."""
    hardware = {"memory": "64Gi", "devices": [{"vendor": "NVIDIA", "memory": "23Gi"}]}
    return [
        thing("Fleet", "home"),
        thing("FleetNode", "l4", {"kubernetes": {"cluster": "prod"}, "hardware": hardware}),
        thing("FleetNode", "mac", {"agent": {"clusters": ["prod"]}}),
        thing("Model", "gemma", {"source": "https://models.test/gemma.gguf"}),
        *(
            thing("InferenceService", n, {"modelRef": "gemma", "placement": {"nodes": [on]}})
            for n in services
        ),
    ]
