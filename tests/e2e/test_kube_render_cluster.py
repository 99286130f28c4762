"""What is rendered, given to a real API server, and to pods that get ready."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.objects import Manifest, id_of, kind_of
from reconciler.kube.yaml_text import dump_all
from tests.support.cluster import Cluster
from tests.support.kube_schemas import write_schemas
from tests.support.manifests import rendered
from tests.support.other_crds import install_others
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CASES = sorted((Path(__file__).parent.parent / "cases" / "kube").glob("*/fleet.yaml"))
EXAMPLE = Path(__file__).parent.parent.parent / "fleet-example"
SERVER_SIDE = ("apply", "--server-side", "--field-manager=fleet-reconciler", "--validate=strict")
PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
            "metadata": {"name": "fleet-high"}}  # fmt: skip


each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.parent.name)


@each_case
def test_the_api_server_takes_every_object_and_answers_it_as_it_was_written(
    cluster: Cluster, case: Path
) -> None:
    made = _in_namespace(cluster, case, "as-written")
    install_others(cluster, {manifest["kind"] for manifest in made})

    cluster.kubectl(*SERVER_SIDE, "-f", "-", text=dump_all(made))

    for manifest in made:
        oid = id_of(manifest)
        live = cluster.json("get", "-n", oid.namespace, kind_of(oid).plural, oid.name)
        assert _differs(dict(manifest), live) == []


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.parent.name != "device-claims"],  # no driver grants them here
    ids=lambda case: case.parent.name,
)
def test_its_pods_are_scheduled_and_get_ready(
    cluster: Cluster, nodes_with_devices: None, case: Path
) -> None:
    """Where the cluster takes pods without rights alone, but for those with a node's folder."""
    made = _in_namespace(cluster, case, "ready")
    if case.parent.name != "host-cache":
        level = "pod-security.kubernetes.io/enforce=restricted"
        cluster.kubectl("label", "namespace", f"ready-{case.parent.name}", level)
    install_others(cluster, {manifest["kind"] for manifest in made})
    (deployment,) = [m for m in made if m["kind"] == "Deployment"]
    where = (
        "-n",
        deployment["metadata"]["namespace"],
        "deployment",
        deployment["metadata"]["name"],
    )

    cluster.kubectl(*SERVER_SIDE, "-f", "-", text=dump_all(made))

    wait_for(lambda: cluster.json("get", *where)["status"].get("readyReplicas"))
    (service,) = [m["metadata"] for m in made if m["kind"] == "Service"]
    chosen = f"kubernetes.io/service-name={service['name']}"
    slices = cluster.json("get", "endpointslices", "-n", service["namespace"], "-l", chosen)[
        "items"
    ]
    leads_to = {e["targetRef"]["name"] for s in slices for e in s["endpoints"] or ()}
    assert leads_to
    stem = f"{service['name']}-"[:58]  # what Kubernetes keeps of the name that a pod's is made from
    assert all(name.startswith(stem) and "-fetch-" not in name for name in leads_to)


def test_every_file_of_the_example_fleet_is_valid_to_the_server_and_to_kubeconform(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its own documents by our published schemas; test_crd_server asks a server about them."""
    out = tmp_path / "rendered"
    schemas = write_schemas(cluster, tmp_path / "schemas")
    declared = subprocess.run(
        [cluster.programs / "kubeconform", "-strict", "-summary",
         "-ignore-filename-pattern", r"/\.github/",  # a workflow is no object
         "-schema-location", f"{EXAMPLE.parent}/schemas/{{{{.ResourceKind}}}}.json", EXAMPLE],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run(
        [Path(sys.executable).parent / "reconcile", "render", "-C", EXAMPLE, "-o", out], check=True
    )

    checked = subprocess.run(
        [cluster.programs / "kubeconform", "-strict", "-verbose", "-summary",
         "-schema-location", schemas, out],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = cluster.kubectl(*SERVER_SIDE, "--dry-run=server", "-R", "-f", str(out))

    assert declared.returncode == 0, declared.stdout + declared.stderr
    assert "Invalid: 0, Errors: 0, Skipped: 0" in declared.stdout
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Valid: 2, Invalid: 0, Errors: 0, Skipped: 0" in checked.stdout
    assert said.count("(server dry run)") == 2


def test_kubeconform_with_these_schemas_refuses_a_field_that_is_not_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    schemas = write_schemas(cluster, tmp_path / "schemas")
    wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {porst: []}\n"

    checked = subprocess.run(
        [cluster.programs / "kubeconform", "-strict", "-schema-location", schemas],
        input=wrong, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert checked.returncode == 1
    assert "porst" in checked.stdout


@pytest.fixture
def nodes_with_devices(cluster: Cluster, case: Path) -> Iterator[None]:
    """A node that has everything that cases ask for, and the volumes of a case's claims."""
    labels = {"flexinfer.ai/gpu.vendor": "NVIDIA", "gpu": "h100"}
    resources = {"nvidia.com/gpu": "8", "amd.com/gpu": "8", "ephemeral-storage": "100Gi"}
    cluster.apply(PRIORITY)
    cluster.add_node("node-7", labels, memory="512Gi", **resources)
    namespace = f"ready-{case.parent.name}"
    cluster.apply(*(_volume(claim, namespace) for claim in ("models", "switch-models")))
    yield
    cluster.kubectl("delete", "pv", "--all", "--wait=false")
    cluster.kubectl("delete", "priorityclass", "fleet-high")


def _in_namespace(cluster: Cluster, case: Path, prefix: str) -> list[Manifest]:
    """The objects of a case in a namespace of their own, where the claim that it names is there."""
    namespace = cluster.namespace(f"{prefix}-{case.parent.name}")
    made = copy.deepcopy(list(rendered(case.read_text())))
    for manifest in made:
        manifest["metadata"]["namespace"] = namespace
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": namespace},
            "spec": {**claim, "storageClassName": ""},
        }
    )
    return made


def _volume(name: str, namespace: str) -> dict[str, Any]:
    """A volume for a claim: nothing here makes any."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": {"storage": "200Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "claimRef": {"namespace": namespace, "name": name},
            "storageClassName": "fast" if name == "switch-models" else "",
            "hostPath": {"path": f"/var/{name}"},
        },
    }


def _differs(want: Any, have: Any, path: str = "") -> list[str]:
    """Where the server holds something else than was written; what it added does not count."""
    if isinstance(want, dict):
        inner = have if isinstance(have, dict) else {}
        return [d for k, v in want.items() for d in _differs(v, inner.get(k), f"{path}.{k}")]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        pairs = zip(want, have, strict=True)
        return [d for i, (w, h) in enumerate(pairs) for d in _differs(w, h, f"{path}[{i}]")]
    return [] if want == have else [f"{path}: {want!r} became {have!r}"]
