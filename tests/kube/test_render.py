"""What a service becomes in a cluster: the cases, and the laws that hold for every one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.digest import digest
from reconciler.api.meta import GROUP
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    INPUTS_DIGEST_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    SERVICE_LABEL,
    Manifest,
    id_of,
    kind_of,
    service_of,
)
from reconciler.kube.render import render
from reconciler.kube.render.placed import placed
from reconciler.kube.yaml_text import dump_all
from reconciler.runtimes.fields import POD_FIELDS, SCALE_FIELDS
from tests.support.fleets import model, service
from tests.support.manifests import (
    CLUSTER,
    desired_of,
    engine_of,
    init_containers,
    of_kind,
    one,
    one_service,
    pool,
    rendered,
    template_of,
    templates,
)

CASES = Path(__file__).parents[1] / "cases" / "kube"
UPDATE = "FLEET_UPDATE_CASES"  # set it to rewrite the expected objects, then review the change


def _cases() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/fleet.yaml"))


each_case = pytest.mark.parametrize("case", _cases(), ids=lambda case: case.name)


@each_case
def test_a_fleet_becomes_the_objects_of_its_case(case: Path) -> None:
    expected = case / "objects.yaml"
    made = dump_all(_of_case(case))

    if os.environ.get(UPDATE):
        expected.write_text(made)

    there = expected.read_text() if expected.exists() else ""
    assert made == there, f"run again with {UPDATE}=1 to accept the new objects"


_CHANGES: dict[str, Any] = {
    "affinity": {"podAntiAffinity": {}},
    "autoscaling": {"maxReplicas": 3},
    "command": ["/opt/llama-server"],
    "endpoint.nodePort": 30080,
    "endpoint.type": "NodePort",
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "httpRoute": {"parentRefs": [{"name": "public"}]},
    "image": "registry.test/engine:1",
    "imagePullSecrets": [{"name": "registry"}],
    "modelCache.claimName": "ours",
    "modelCache.persistence": "Ephemeral",
    "inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}},
    "nodeSelector": {"zone": "a"},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "podDisruptionBudget": {"minAvailable": 1},
    "podLabels": {"team": "a"},
    "podSecurityContext": {"fsGroup": 102},
    "priority": "high",
    "priorityClassName": "fleet-low",
    "probeOverrides": {"liveness": {"periodSeconds": 60}},
    "replicas": 3,
    "resources.limits": {"cpu": 3},
    "resources.requests": {"cpu": 3},
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
    "runtimeClassName": "nvidia",
    "securityContext": {"runAsUser": 1001},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
}
_NEEDED: dict[str, Any] = {
    "extraVolumeMounts": {"extraVolumes": _CHANGES["extraVolumes"]},
    "modelCache.persistence": {"modelCache": {"claimName": "ours"}},
}


@pytest.mark.parametrize("path", sorted({*POD_FIELDS, *SCALE_FIELDS}))
def test_a_field_that_pods_are_made_from_changes_them_and_one_of_their_number_only_the_rest(
    path: str,
) -> None:
    field, _, inner = path.partition(".")
    change = {inner: _CHANGES[path]} if inner else _CHANGES[path]
    there = _NEEDED.get(path, {})

    before, after = (_plain(one_service(**there | more)) for more in ({}, {field: change}))

    assert before != after
    assert (template_of(before) != template_of(after)) == (path in POD_FIELDS)


def _plain(made: Iterable[Manifest]) -> list[Manifest]:
    """Without the notes of what they were made from."""

    def stripped(node: Any) -> Any:
        if isinstance(node, dict):
            kept = {k: v for k, v in node.items() if not k.startswith(GROUP)}
            return {k: stripped(v) for k, v in kept.items()}
        return [stripped(item) for item in node] if isinstance(node, list) else node

    return [stripped(manifest) for manifest in made]


@each_case
def test_the_same_fleet_becomes_the_same_bytes(case: Path) -> None:
    documents = (case / "fleet.yaml").read_text().split("\n---\n")

    there = {id_of(m): json.dumps(m) for m in rendered(*documents)}
    back = {id_of(m): json.dumps(m) for m in rendered(*reversed(documents))}

    assert there == back


@each_case
def test_one_more_service_leaves_the_objects_of_every_other_as_they_are(case: Path) -> None:
    text = (case / "fleet.yaml").read_text()
    more = [pool("aaa"), model("aaa"), service("aaa", "aaa", placement={"nodes": ["aaa"]})]

    before = {id_of(m): json.dumps(m) for m in rendered(text)}
    after = {id_of(m): json.dumps(m) for m in rendered(text, *more)}

    assert before.items() < after.items()


@each_case
def test_objects_are_in_the_order_in_which_they_are_written(case: Path) -> None:
    stages = [kind_of(id_of(manifest)).stage for manifest in _of_case(case)]

    assert stages == sorted(stages)


@each_case
def test_there_is_one_port(case: Path) -> None:
    made = _of_case(case)
    (port,) = one(made, "Service")["spec"]["ports"]
    engine = engine_of(made)
    (exposed,) = engine["ports"]

    (found,) = placed(desired_of((case / "fleet.yaml").read_text()), CLUSTER)
    (companion,) = (c["args"] for c in init_containers(made) if c["name"] == "companion")

    assert port["targetPort"] == exposed["name"]
    assert exposed["containerPort"] == (found.service.spec.container_port or port["port"])
    for argv in (companion, *(() if "custom" in case.name else (engine["args"],))):
        assert argv[argv.index("--port") + 1] == str(exposed["containerPort"])
    assert "hostPort" not in json.dumps(made)


@each_case
def test_no_pod_may_more_than_it_must(case: Path) -> None:
    for template in templates(_of_case(case)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            rights = dict(container["securityContext"])
            users = {name for name in rights if name in ("runAsGroup", "runAsUser")}
            assert not users or container["name"] == "engine"
            assert {name: rights[name] for name in rights if name not in users} == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


@each_case
def test_every_mount_has_its_volume_and_only_who_fetches_can_write_models(case: Path) -> None:
    for template in templates(_of_case(case)):
        spec = template["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            for mount in container["volumeMounts"]:
                assert mount["name"] in volumes
                if mount["name"] == "models":
                    assert mount.get("readOnly", False) is not container["name"].startswith("fetch")


@each_case
def test_the_service_finds_the_pods_that_answer_and_none_that_fetches(case: Path) -> None:
    made = _of_case(case)
    wanted = one(made, "Service")["spec"]["selector"].items()

    assert wanted <= one(made, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert one(made, "Deployment")["spec"]["selector"]["matchLabels"].items() == wanted
    for job in of_kind(made, "Job"):
        assert not wanted <= job["spec"]["template"]["metadata"]["labels"].items()


@each_case
def test_every_object_says_which_service_it_is_for(case: Path) -> None:
    made = _of_case(case)

    assert {service_of(manifest) for manifest in made} == {
        found.workload.ref
        for found in placed(desired_of((case / "fleet.yaml").read_text()), CLUSTER)
    }
    for manifest in made:
        assert len(manifest["metadata"]["labels"][SERVICE_LABEL]) <= 63
        assert len(manifest["metadata"]["name"]) <= 63


@each_case
def test_a_deployment_carries_what_its_pods_were_made_from(case: Path) -> None:
    (found,) = placed(desired_of((case / "fleet.yaml").read_text()), CLUSTER)
    made = one(render(found), "Deployment")
    annotations = made["metadata"]["annotations"]
    of_pods = made["spec"]["template"]["metadata"]["annotations"]

    assert json.loads(annotations[INPUTS_ANNOTATION]) == found.workload.inputs
    assert annotations[INPUTS_DIGEST_ANNOTATION] == found.workload.inputs_digest
    assert annotations[RENDER_DIGEST_ANNOTATION] == digest(made["spec"]["template"])
    stated = found.service.spec.pod_annotations
    assert of_pods == {**stated, INPUTS_DIGEST_ANNOTATION: found.workload.process_digest}


def _of_case(case: Path) -> tuple[Manifest, ...]:
    return rendered((case / "fleet.yaml").read_text())
