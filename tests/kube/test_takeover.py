"""Who would go on writing objects that are to be ours, and what of an object would be lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.meta import GROUP
from reconciler.kube.adoption.controllers import signs
from reconciler.kube.install.takeover import ForeignInstallation, losses, misfits_of, write_backup

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
IMAGE = "ghcr.io/defilantech/llmkube-controller:0.9.19"


def thing(kind: str, name: str = "x", **content: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ai", **content.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}


def workload(kind: str, image: str = IMAGE, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "manager", "image": image}]}}
    return thing(kind, spec={"template": template, **spec})


def pod(image: str = IMAGE, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "manager", "image": image}]}
    return thing("Pod", spec=spec, status={"phase": phase}, metadata=metadata)


def lease(name: str, holder: str, renewed: str) -> dict[str, Any]:
    return thing("Lease", name, spec={"holderIdentity": holder, "renewTime": renewed})


def definition(labels: dict[str, str], group: str = GROUP) -> dict[str, Any]:
    spec = {"group": group, "names": {"kind": "Model"}}
    return thing("CustomResourceDefinition", spec=spec, metadata={"labels": labels})


FLUX = {"kustomize.toolkit.fluxcd.io/name": "llm"}
BEAT = "llmkube.ai/agent-heartbeat"


@pytest.mark.parametrize(
    "live",
    [
        workload("Deployment"),
        workload("Deployment", "registry.lan/mirror/llmkube@sha256:00", replicas=2),
        workload("DaemonSet"),
        pod(),
        pod(ownerReferences=[{"name": "rs"}], deletionTimestamp="2026-01-01T12:00:00Z"),
        lease("controller.llmkube.dev", "pod-1", "2026-01-01T11:59:50.000000Z"),
        thing("EndpointSlice", metadata={"annotations": {BEAT: "2026-01-01T11:59:30Z"}}),
        definition(FLUX),
    ],
)
def test_these_are_live_and_say_how_to_end_them(live: dict[str, Any]) -> None:
    [found] = signs(live, NOW)

    assert found.way_out


@pytest.mark.parametrize(
    "live",
    [
        workload("Deployment", replicas=0),
        workload("Deployment", "ghcr.io/ggml-org/llama.cpp:server"),
        workload("Deployment", "ghcr.io/me/not-llmkubernetes:1"),
        pod(phase="Succeeded"),
        pod(ownerReferences=[{"name": "rs"}]),  # its Deployment says it
        lease("controller.llmkube.dev", "pod-1", "2026-01-01T11:00:00Z"),
        lease("controller.llmkube.dev", "", "2026-01-01T11:59:50Z"),
        lease("kube-scheduler", "a", "2026-01-01T11:59:50Z"),
        lease("controller.llmkube.dev", "pod-1", "no time"),
        thing("EndpointSlice", metadata={"annotations": {BEAT: "2026-01-01T11:00:00Z"}}),
        thing("EndpointSlice"),
        definition({}),
        definition(FLUX, group="other.dev"),
    ],
)
def test_these_are_not_live(live: dict[str, Any]) -> None:
    assert list(signs(live, NOW)) == []


def test_what_our_definitions_do_not_know_or_take_is_named_by_its_field() -> None:
    found = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "ai", "uid": "1", "managedFields": []},
        "spec": {"modelRef": "gemma", "runtime": "sglang", "oven": {"a": "b"}},
        "status": {"phase": "Ready"},
    }

    said = [*losses(misfits_of(found))]

    assert len(said) == 2
    assert any(
        line.startswith("InferenceService spec.oven (1 object: ai/chat): no such") for line in said
    )


def test_a_loss_is_said_once_for_all_objects_and_a_definitions_default_is_none() -> None:
    def stored(number: int, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "Model",
            "metadata": {"name": f"m{number}", "namespace": "ai"},
            "spec": {"source": "https://models.test/m.gguf", **spec},
        }

    oven = {"properties": {"mode": {"default": "warm"}, "size": {}}}
    schema = {"properties": {"spec": {"properties": {"oven": oven}}}}
    version = {"storage": True, "schema": {"openAPIV3Schema": schema}}
    made = {"spec": {"names": {"kind": "Model"}, "versions": [version]}}
    written = [stored(n, oven={"mode": "warm", "size": n}) for n in range(5)]
    defaulted = [stored(n, oven={"mode": "warm"}) for n in range(5, 9)]

    [line] = losses(ForeignInstallation((made,), (*written, *defaulted)).misfits())

    assert line.startswith("Model spec.oven (5 objects: ai/m0, ai/m1, ai/m2 and 2 more): no such")


def test_a_backup_holds_all_and_is_private(tmp_path: Path) -> None:
    held = ForeignInstallation((definition({}),), (thing("Model", spec={"source": "x"}),))

    path = write_backup(tmp_path, "prod/eu", held)

    assert path.parent == tmp_path  # a cluster's name is no path
    assert path.stat().st_mode & 0o777 == 0o600
    kinds = [document["kind"] for document in yaml.safe_load_all(path.read_text())]
    assert kinds == ["CustomResourceDefinition", "Model"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [  # as its definitions of 0.9.19 stored plain documents, with their defaults
        (
            "InferenceService",
            {
                "contextSize": 4096,
                "disruption": {"protectStartup": True},
                "endpoint": {"path": "/v1/chat/completions", "port": 8080, "type": "ClusterIP"},
                "modelRef": "gemma",
                "priority": "normal",
                "replicas": 1,
                "resources": {"cpu": "1", "memory": "1Gi"},
                "rolloutPolicy": {"idleTimeoutSeconds": 300, "waitForIdle": True},
                "runtime": "llamacpp",
                "suspend": False,
            },
        ),
        (
            "Model",
            {
                "format": "gguf",
                "hardware": {"accelerator": "cpu", "gpu": {"vendor": "nvidia", "count": 1}},
                "quantization": "Q4_K_M",
                "refreshPolicy": "IfNotPresent",
                "resources": {"cpu": "1", "memory": "1Gi"},
                "source": "https://models.test/gemma.gguf",
            },
        ),
    ],
)
def test_a_take_over_loses_no_field_of_llmkubes_documents(kind: str, spec: dict[str, Any]) -> None:
    stored = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": "gemma", "namespace": "ai"},
        "spec": spec,
    }

    assert list(misfits_of(stored)) == []
