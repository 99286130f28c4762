"""LLMKube as a cluster has it, as far as a take-over meets it: a definition of the same group with
another schema, objects of it, and its controller's Deployment."""

from __future__ import annotations

from typing import Any

from reconciler.api.meta import API_VERSION, GROUP
from tests.support.cluster import Cluster
from tests.support.wait import PATIENCE_S, wait_for

NAMESPACE = "llmkube-system"
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"inferenceservices.{GROUP}",
        "annotations": {"meta.helm.sh/release-name": "llmkube"},
    },
    "spec": {
        "group": GROUP,
        "names": {
            "kind": "InferenceService",
            "plural": "inferenceservices",
            "singular": "inferenceservice",
            "listKind": "InferenceServiceList",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": _ANYTHING},
            }
        ],
    },
}


def install_llmkube(cluster: Cluster) -> None:
    """The definition, served; two services, one with a field that ours does not know."""
    cluster.apply(DEFINITION)
    words = ("--for=condition=Established", f"--timeout={PATIENCE_S:g}s")
    cluster.kubectl("wait", *words, "crd", DEFINITION["metadata"]["name"])
    wait_for(
        lambda: "No resources" in cluster.kubectl("get", "inferenceservices", check=False),
        "the definition is served",
    )
    cluster.apply(
        _service("plain", {"modelRef": "gemma", "replicas": 1}),
        _service("rich", {"modelRef": "gemma", "speculative": {"n": 3}}),
    )


def start_controller(cluster: Cluster, namespace: str) -> None:
    """Its Deployment, by the release's names."""
    container = {"name": "manager", "image": "ghcr.io/defilantech/llmkube-controller:0.9.19"}
    labels = {"app": "llmkube"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "llmkube-controller-manager", "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
    )


def _service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": spec,
    }
