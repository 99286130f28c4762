"""LLMKube as a cluster has it, as far as a take-over meets it: a definition of the same group with
another schema, objects of it, and its controller's Deployment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from reconciler.api.meta import API_VERSION, GROUP
from tests.support.cluster import Cluster
from tests.support.wait import PATIENCE_S, wait_for

NAMESPACE = "llmkube-system"
_RECORDED = Path(__file__).parents[1] / "cases" / "llmkube"
_BY_IT = ("--field-manager=manager",)  # as its program is called
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
                "subresources": {"status": {}},
            }
        ],
    },
}


def install_definitions(cluster: Cluster, *kinds: str) -> None:
    """They are served."""
    for kind in kinds:
        text = json.dumps(DEFINITION).replace("InferenceService", kind)
        definition = json.loads(text.replace("inferenceservice", kind.lower()))
        cluster.apply(definition)
        words = ("--for=condition=Established", f"--timeout={PATIENCE_S:g}s")
        cluster.kubectl("wait", *words, "crd", definition["metadata"]["name"])
        plural = definition["spec"]["names"]["plural"]
        served = partial(cluster.kubectl, "get", plural, check=False)
        wait_for(lambda served=served: "No resources" in served(), "the definition is served")


def install_llmkube(cluster: Cluster) -> None:
    """The definition, served; two services, one with a field that ours does not know."""
    install_definitions(cluster, "InferenceService")
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


def end_controller(cluster: Cluster, namespace: str) -> None:
    """As people are told to."""
    named = ("deployment", "llmkube-controller-manager", "-n", namespace)
    cluster.kubectl("scale", *named, "--replicas=0")
    cluster.wait("pod", "-l", "app=llmkube", "-n", namespace, "--for=delete")


def _service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class LlmkubeServices:
    """What its controller (0.9.19) wrote for services, recorded: `tests/cases/llmkube/NAME.yaml`,
    of which the first two are documents of people."""

    names: tuple[str, ...]

    def files(self) -> dict[str, str]:
        """The documents, as a repository has them."""
        return {f"{name}.yaml": yaml.safe_dump_all(_facts(name)[:2]) for name in self.names}

    def write(self, cluster: Cluster) -> None:
        """Into a cluster whose definitions are there, with the uids that it gives; until the pods
        run."""
        cluster.apply(*_facts("shared"))
        for name in self.names:
            facts = _facts(name)
            documents, made_of_them = facts[:2], facts[2:]
            cluster.apply(*documents)
            self._serve(cluster, name, documents)
            uid = cluster.json("get", "inferenceservice", name)["metadata"]["uid"]
            for made in made_of_them:
                made["metadata"]["ownerReferences"][0]["uid"] = uid
                cluster.kubectl("create", *_BY_IT, "-f", "-", text=yaml.safe_dump(made))
        for name in self.names:
            cluster.wait("deployment", name, "--for=condition=Available")

    def _serve(self, cluster: Cluster, name: str, documents: list[dict[str, Any]]) -> None:
        status = json.dumps({"status": {"phase": "Ready"}})
        for made in documents:
            words = ("patch", made["kind"], name, "--subresource=status", "--type=merge")
            cluster.kubectl(*words, *_BY_IT, "-p", status)


def pods_of(cluster: Cluster, name: str) -> dict[str, str]:
    """The pods of a service, by name, with their uids."""
    found = cluster.json("get", "pods", "-l", f"app={name}")["items"]
    alive = (p["metadata"] for p in found if not p["metadata"].get("deletionTimestamp"))
    return {each["name"]: each["uid"] for each in alive}


def _facts(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((_RECORDED / f"{name}.yaml").read_text())]
