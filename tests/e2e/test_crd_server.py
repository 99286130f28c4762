"""The definitions in a real API server: it refuses what `reconcile validate` refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3

from reconciler.api.kinds import KINDS, schema_file
from reconciler.api.meta import GROUP
from reconciler.kube.crd.definitions import crds
from reconciler.kube.objects import OWNED_KINDS
from reconciler.runtimes import DEFAULT_RUNTIME, RUNTIMES
from reconciler.source.documents import read_documents
from reconciler.source.mistakes import explain
from reconciler.source.validators import schema_text, validator
from tests.support.cluster import Cluster, running_cluster
from tests.support.schema_probes import probes
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.together]

REPOSITORY = Path(__file__).parent.parent.parent
CASES = REPOSITORY / "tests" / "cases"


class Verdict(NamedTuple):
    """Whether the server takes a document, and what it says where it does not."""

    accepted: bool
    message: str


class Server:
    """Asks an API server about documents, strictly and without a trace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._url = cluster.url
        self._pool = urllib3.PoolManager(
            maxsize=8,
            ca_certs=str(cluster.ca),
            headers={"Authorization": f"Bearer {cluster.token}"},
        )

    def ask(self, document: dict[str, Any]) -> Verdict:
        row = OWNED_KINDS[GROUP, document["kind"]]
        namespace = "default" if row.namespaced else ""
        metadata = {"name": document["metadata"]["name"]}
        answer = self._pool.request(
            "POST",
            f"{self._url}{row.path(namespace)}?dryRun=All&fieldValidation=Strict",
            json={**document, "metadata": metadata},
        )
        assert answer.status in (201, 400, 422), (answer.status, answer.data[:500])
        return Verdict(answer.status == 201, answer.json().get("message", ""))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_cluster() as cluster:
        cluster.apply(*crds(RUNTIMES))  # client-side: it must fit into the annotation
        cluster.wait("--for=condition=Established", "crd", "--all")
        asked = Server(cluster)
        # discovery of a new kind follows its condition a moment later
        plurals = [OWNED_KINDS[GROUP, kind].plural for kind in KINDS]
        wait_for(lambda: all(_is_served(cluster, plural) for plural in plurals), "all served")
        yield asked


def _is_served(cluster: Cluster, plural: str) -> bool:
    said = cluster.kubectl("get", f"{plural}.{GROUP}", "-A", check=False)
    return "No resources found" in said


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every document of the cases and of the example that has a kind and a name of ours."""
    for root in (CASES, REPOSITORY / "fleet-example"):
        for path in sorted(root.rglob("*.yaml")):
            read = read_documents(path.name, path.read_bytes())
            for number, document in enumerate(read.documents):
                content = document.content
                if isinstance(content, dict) and _is_ours(content):
                    yield f"{path.relative_to(REPOSITORY)}[{number}]", content


def _is_ours(content: dict[str, Any]) -> bool:
    metadata = content.get("metadata")
    return (
        content.get("apiVersion") == f"{GROUP}/v1alpha1"
        and content.get("kind") in KINDS
        and isinstance(metadata, dict)
        and isinstance(metadata.get("name"), str)
    )


def test_every_document_of_the_cases_is_judged_alike(server: Server) -> None:
    judged = dict(documents())
    metadata_is_wrong = {
        name
        for name, content in judged.items()
        if any(m.field.startswith("metadata") for m in explain(validator(content["kind"]), content))
    }

    wrong = {
        name: verdict.message
        for name, content in judged.items()
        if name not in metadata_is_wrong
        if (verdict := server.ask(content)).accepted is not _is_valid(content)
    }

    assert wrong == {}
    assert len(judged) - len(metadata_is_wrong) > 100


def _is_valid(content: dict[str, Any]) -> bool:
    """By our schema. Options of a service that names no runtime are a rule's, which asks the schema
    about the runtime that it will have; here that is the default one."""
    if content["kind"] == "InferenceService" and "runtimeOptions" in (content.get("spec") or {}):
        content = {**content, "spec": {"runtime": DEFAULT_RUNTIME, **content["spec"]}}
    return validator(content["kind"]).is_valid(content)


def test_fields_that_exclude_each_other_are_refused_in_our_words(server: Server) -> None:
    said = []
    for case in ("models-rule", "node-kinds"):
        for path in sorted((CASES / "invalid" / case).glob("*.yaml")):
            content = read_documents(path.name, path.read_bytes()).documents[0].content
            mistakes = explain(validator(content["kind"]), content)
            if any(m.field == "spec" for m in mistakes):
                verdict = server.ask(content)
                assert not verdict.accepted
                assert f"spec: Invalid value: {mistakes[0].message}" in verdict.message
                said.append(mistakes[0].message)

    assert len(said) == 10


def test_an_option_of_another_runtime_is_refused_in_our_words(server: Server) -> None:
    spec = {"runtime": "mlx-server", "modelRef": "gemma", "runtimeOptions": {"swaFull": True}}
    content = _document("InferenceService", spec)
    [mistake] = explain(validator("InferenceService"), content)

    verdict = server.ask(content)

    assert mistake.field == "spec.runtimeOptions.swaFull"
    assert f"spec.runtimeOptions: Invalid value: {mistake.message}" in verdict.message


BASES: dict[str, dict[str, Any]] = {
    "Fleet": {},
    "FleetNode": {"agent": {}},
    "Model": {"source": "https://models.test/m.gguf"},
    "InferenceService": {"runtime": DEFAULT_RUNTIME, "modelRef": "gemma"},
}
_SCALED = f"/apis/{GROUP}/v1alpha1/namespaces/default/inferenceservices/scaled"


def _document(kind: str, spec: dict[str, Any], name: str = "probe") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_api_server_and_the_json_schema_agree_about_every_field(
    server: Server, kind: str
) -> None:
    schema = json.loads(schema_text(schema_file(kind)))
    spec = schema["properties"]["spec"]
    tried = list(probes(_document(kind, BASES[kind]), spec, schema["$defs"]))
    check = validator(kind)

    with ThreadPoolExecutor(4) as threads:
        verdicts = list(threads.map(lambda probe: server.ask(probe.document), tried))

    wrong = [
        f"{probe.place}={probe.value!r:.40}: ours {check.is_valid(probe.document)},"
        f" theirs {verdict.accepted} {verdict.message[:200]}"
        for probe, verdict in zip(tried, verdicts, strict=True)
        if verdict.accepted is not check.is_valid(probe.document)
    ]
    assert wrong == []
    assert {verdict.accepted for verdict in verdicts} == {True, False}


def test_a_service_can_be_scaled_and_its_status_is_written_apart(server: Server) -> None:
    cluster = server.cluster
    cluster.apply(_document("InferenceService", {"modelRef": "gemma", "replicas": 1}, "scaled"))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "ModelMissing",
        "message": "it is being downloaded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "observedGeneration": 1,
        "conditions": [condition],
        "placements": [{"node": "edge-l4", "ready": False}],
        "endpoint": "http://scaled.default:8080/v1/chat/completions",
        "replicas": 1,
        "selector": "app=scaled",
    }

    cluster.kubectl("scale", "isvc/scaled", "--replicas=3")
    cluster.kubectl(
        *("patch", "isvc", "scaled", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"spec": {"replicas": 9}, "status": status})),
    )

    stored = cluster.json("get", "isvc", "scaled")
    scale = json.loads(cluster.kubectl("get", "--raw", f"{_SCALED}/scale"))
    rows = cluster.kubectl("get", "isvc", "scaled", "-o", "wide").splitlines()
    assert stored["spec"] == {"modelRef": "gemma", "replicas": 3}
    assert stored["status"] == status
    assert scale["status"] == {"replicas": 1, "selector": "app=scaled"}
    assert rows[0].split() == [
        "NAME", "READY", "REASON", "NODE", "RUNTIME", "MODEL", "ENDPOINT", "TOKENS/S", "REVISION",
        "AGE",
    ]  # fmt: skip
    assert rows[1].split()[:4] == ["scaled", "False", "ModelMissing", "edge-l4"]


def test_a_pool_shows_the_labels_of_its_nodes_and_claims_nothing_of_them(server: Server) -> None:
    pool = {"cluster": "prod", "nodeSelector": {"pool": "l4"}}
    server.cluster.apply(_document("FleetNode", {"kubernetes": pool, "hardware": {}}, "shown"))

    rows = server.cluster.kubectl("get", "fleetnode", "shown").splitlines()

    assert rows[0].split() == ["NAME", "READY", "REASON", "HOST", "CLUSTER", "NODES", "AGE"]
    assert rows[1].split()[:3] == ["shown", "prod", '{"pool":"l4"}']


def test_two_agents_each_own_their_entry_of_the_instances(server: Server) -> None:
    cluster = server.cluster
    cluster.apply(_document("InferenceService", {"modelRef": "gemma"}, "shared"))

    for node in ("mac-1", "mac-2"):
        entry = {"status": {"instances": [{"node": node, "ready": True, "port": 20001}]}}
        document = _document("InferenceService", {}, "shared") | entry
        del document["spec"]
        cluster.kubectl(
            *("apply", "--server-side", "--subresource=status", f"--field-manager={node}"),
            *("-f", "-"),
            text=json.dumps(document),
        )

    found = cluster.json("get", "isvc", "shared")["status"]["instances"]
    assert [entry["node"] for entry in found] == ["mac-1", "mac-2"]
