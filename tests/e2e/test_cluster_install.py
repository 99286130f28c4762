"""`reconcile install` and `uninstall` against a real API server, looked at with kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from reconciler.api.meta import GROUP
from reconciler.cli import main
from reconciler.kube.objects import OWNED_KINDS
from tests.support.cluster import Cluster
from tests.support.helm import CHART, helm, set_values
from tests.support.llmkube import DEFINITION, install_llmkube, start_controller
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

OK, BLOCKED, USAGE = 0, 3, 64
URL = "https://git.test/fleet.git"
NAMESPACE = "fleet-reconciler"
RECONCILER = f"system:serviceaccount:{NAMESPACE}:fleet-reconciler"


class Run(NamedTuple):
    code: int
    out: str
    err: str


Reconcile = Callable[..., Run]


@pytest.fixture(autouse=True)
def without_our_namespace(cluster: Cluster) -> None:
    """Other tests of this cluster may have made it, and then it is not an installation's."""
    at = ("namespace", "-l", "!app.kubernetes.io/managed-by")
    cluster.kubectl("delete", *at, f"--field-selector=metadata.name={NAMESPACE}")


@pytest.fixture
def reconcile(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Reconcile:
    """Run a command against the cluster, as a person would."""

    def run(command: str, *words: str) -> Run:
        capfd.readouterr()
        # Behind `--` everything is for the program.
        at = ("--cluster", "prod=test", "--kubeconfig", str(cluster.kubeconfig))
        code = main([command, *at, *words])
        return Run(code, *capfd.readouterr())

    return run


def names(cluster: Cluster, kinds: str, *words: str) -> set[str]:
    return set(cluster.kubectl("get", kinds, "-o", "name", *words).split())


def ours(cluster: Cluster, *, namespaces: bool = True) -> set[str]:
    """Everything in the cluster that says that it is ours and is not going away."""
    kinds = (
        "crd,clusterroles,clusterrolebindings,roles,rolebindings,sa,secrets,leases,priorityclasses,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings,deploy,svc,cm,jobs,pvc"
    )
    label = f"app.kubernetes.io/managed-by={NAMESPACE}"
    found = cluster.json("get", "ns", "-l", label)["items"] if namespaces else []
    lasting = {n["metadata"]["name"] for n in found if n["status"]["phase"] == "Active"}
    return names(cluster, kinds, "-A", "-l", label) | {f"namespace/{name}" for name in lasting}


def wait_none_of_ours(cluster: Cluster) -> None:
    left: set[str] = set()

    def is_none() -> bool:
        left.clear()
        left.update(ours(cluster))
        return not left

    wait_for(is_none, left)


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **({} if kind == "FleetNode" else {"namespace": "default"})},
        "spec": spec,
    }


def test_a_second_installation_changes_nothing_and_says_so(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    first = reconcile("install", "-C", URL)
    versions = cluster.kubectl("get", "crd,clusterroles,deploy", "-A", "-o", _VERSIONS)

    second = reconcile("install", "-C", URL)

    assert (first.code, second.code) == (OK, OK), first.err + second.err
    assert "created Deployment fleet-reconciler/fleet-reconciler" in first.out
    assert "cluster prod: nothing to do, " in second.out
    assert cluster.kubectl("get", "crd,clusterroles,deploy", "-A", "-o", _VERSIONS) == versions


_VERSIONS = "jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{'\\n'}{end}"


def test_without_a_git_url_everything_is_written_but_what_runs(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    run = reconcile("install")

    assert run.code == OK
    assert "everything but the reconciler's Deployment and Service" in run.err
    assert names(cluster, "deploy,svc", "-n", NAMESPACE) == set()
    assert f"serviceaccount/{NAMESPACE}" in ours(cluster)
    cluster.apply(document("Model", "gemma", {"source": "https://models.test/gemma.gguf"}))


def test_the_program_passes_the_strictest_pod_security(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    cluster.add_node("worker")

    run = reconcile("install", "-C", URL, "--secret", "git-token-file=fleet-git/token")

    assert run.code == OK
    # kwok calls the pod ready; admission of the pod is the API server's own.
    cluster.wait("--for=condition=Available", "deploy/fleet-reconciler", "-n", NAMESPACE)
    [pod] = cluster.json("get", "pods", "-n", NAMESPACE)["items"]
    assert pod["spec"]["containers"][0]["args"] == [
        *("-C", URL, "--cluster", "prod", "--listen", "0.0.0.0:8080"),
        *("--git-token-file", "/etc/fleet/git-token/token"),
    ]


def test_what_export_prints_is_what_install_writes(
    cluster: Cluster, reconcile: Reconcile, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["install", "--export", "-C", URL, "--kubeconfig", "/nonexistent"])
    printed = capfd.readouterr().out

    cluster.kubectl("apply", "--server-side", "--field-manager=x", "-f", "-", text=printed)

    assert code == OK
    documents = list(yaml.safe_load_all(printed))
    before = {_key(d): _specified(cluster, d) for d in documents}
    reconcile("install", "-C", URL)
    after = {_key(d): _specified(cluster, d) for d in documents}
    # --export knows no cluster's name
    assert before.pop(("Deployment", NAMESPACE)) != after.pop(("Deployment", NAMESPACE))
    assert before == after


def _key(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _specified(cluster: Cluster, manifest: dict[str, Any]) -> Any:
    at = manifest["metadata"].get("namespace")
    live = cluster.json("get", *_key(manifest), *(("-n", at) if at else ()))
    return {key: live[key] for key in manifest if key not in ("metadata", "status")}


def test_the_reconciler_may_do_what_it_needs_and_reads_no_secret(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    reconcile("install")

    kinds = {row.kind: (row.group, row.plural, "") for row in OWNED_KINDS.values()}
    private = {
        "secrets": ("", "secrets", ""),
        "accounts": ("", "serviceaccounts", ""),
        "roles": ("rbac.authorization.k8s.io", "clusterroles", ""),
        "exec": ("", "pods", "exec"),
        "logs": ("", "pods", "log"),
    }
    granted = _granted(cluster, kinds | private | {"pods": ("", "pods", "")})

    least = {kind: {"get", "list", "watch"} for kind in ("CustomResourceDefinition", "Namespace")}
    assert {kind: granted[kind] for kind in kinds} == {
        kind: least.get(kind, set(VERBS)) for kind in kinds
    }
    assert {name: granted[name] for name in private} == {name: set() for name in private}
    assert granted["pods"] == {"get", "list", "watch"}


VERBS = ("get", "list", "watch", "create", "patch", "update", "delete")


def _granted(cluster: Cluster, resources: dict[str, tuple[str, str, str]]) -> dict[str, set[str]]:
    """What the reconciler may do with each (group, resource, subresource), says the server."""
    asked = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": RECONCILER,
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": part,
                    "namespace": "default",
                },
            },
        }
        for group, resource, part in resources.values()
        for verb in VERBS
    ]
    text = "\n---\n".join(map(json.dumps, asked))
    said = cluster.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed} ", text=text)
    allowed = iter(said.split())
    return {name: {verb for verb in VERBS if next(allowed) == "true"} for name in resources}


class Agent:
    """Who has the kubeconfig of a node's agent."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self._cluster, self._kubeconfig = cluster, kubeconfig

    def apply(self, manifest: dict[str, Any], subresource: str = "", *words: str) -> str:
        """What kubectl says, good or bad."""
        return self._cluster.kubectl(
            *(f"--kubeconfig={self._kubeconfig}", "apply", "--server-side", "--force-conflicts"),
            *("--field-manager=fleet-agent", f"--subresource={subresource}", "-f", "-", *words),
            text=json.dumps(manifest),
            check=False,
        )

    def get(self, *words: str) -> str:
        return self._cluster.kubectl(f"--kubeconfig={self._kubeconfig}", "get", *words, check=False)


@pytest.fixture
def agent(cluster: Cluster, reconcile: Reconcile, tmp_path: Path) -> Agent:
    assert reconcile("install").code == OK
    run = reconcile("install", "--agent", "mac-1")
    assert run.code == OK, run.err
    path = tmp_path / "mac-1.kubeconfig"
    path.write_text(run.out)
    for node in ("mac-1", "mac-2"):
        cluster.apply(document("FleetNode", node, {"agent": {}}))
    cluster.apply(document("InferenceService", "chat", {"modelRef": "gemma"}))
    listed = [{"namespace": "default", "name": name} for name in ("chat", "probe")]
    desired = {"status": {"desired": {"revision": "r1", "digest": "d", "services": listed}}}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(desired))
    cluster.kubectl("patch", "fleetnode", "mac-1", *patch)
    made = Agent(cluster, path)
    # A policy is in force a moment after it was written, or, where the API server has just seen the
    # definition of its parameters go, once it looks for new kinds again: every 30 s.
    # Nothing is kept of what is asked before: the second policy looks at what is made alone.
    said = ["", ""]
    asked = [slice_of("mac-2", "chat"), slice_of("mac-1", "kubernetes")]

    def are_in_force() -> bool:
        said[:] = (made.apply(one, "", "--dry-run=server") for one in asked)
        return "own node" in said[0] and "status.desired" in said[1]

    wait_for(are_in_force, said)
    return made


def slice_of(node: str, name: str = "chat") -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{node}",
            "namespace": "default",
            "labels": {f"{GROUP}/node": node, "kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.168.1.50"], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": 20001, "protocol": "TCP"}],
    }


def lease_of(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"fleet-node-{node}", "namespace": NAMESPACE},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40},
    }


def status_of(kind: str, name: str, status: dict[str, Any]) -> dict[str, Any]:
    made = document(kind, name, {}) | {"status": status}
    del made["spec"]
    return made


def test_an_agents_kubeconfig_is_for_its_own_node(agent: Agent) -> None:
    entry = {"node": "mac-1", "ready": True, "port": 20001}

    said = [
        agent.apply(lease_of("mac-1")),
        agent.apply(slice_of("mac-1")),
        agent.apply(status_of("InferenceService", "chat", {"instances": [entry]}), "status"),
        agent.apply(status_of("FleetNode", "mac-1", {"observed": {"agentVersion": "1"}}), "status"),
    ]

    assert all("serverside-applied" in text for text in said), said
    assert "chat" in agent.get("isvc,mdl,fn", "-A")


def test_an_agent_cannot_take_the_clients_of_a_service_that_is_not_on_its_node(
    cluster: Cluster, agent: Agent
) -> None:
    elsewhere = slice_of("mac-1")
    elsewhere["metadata"]["namespace"] = "kube-system"
    renamed = slice_of("mac-1")
    renamed["metadata"]["labels"]["kubernetes.io/service-name"] = "kubernetes"

    made = agent.apply(slice_of("mac-1"))
    said = [agent.apply(each) for each in (slice_of("mac-1", "kubernetes"), elsewhere, renamed)]
    cluster.kubectl("delete", "fleetnode", "mac-1")
    wait_for(lambda: "denied" in agent.apply(slice_of("mac-1", "probe")), "no node, no service")
    withdrawn = slice_of("mac-1")
    withdrawn["endpoints"][0]["conditions"] = {"ready": False}

    assert "serverside-applied" in made
    assert all("status.desired" in text for text in said[:2]), said
    assert "stays the one of its service" in said[2]
    assert "serverside-applied" in agent.apply(withdrawn)


def test_an_agent_cannot_write_for_another_node_or_for_the_reconciler(
    cluster: Cluster, agent: Agent
) -> None:
    other = {"instances": [{"node": "mac-2", "ready": True}]}
    verdict = {"endpoint": "http://elsewhere.test/v1/chat/completions"}

    said = {
        "lease": agent.apply(lease_of("mac-2")),
        "slice": agent.apply(slice_of("mac-2")),
        "instance": agent.apply(status_of("InferenceService", "chat", other), "status"),
        "endpoint": agent.apply(status_of("InferenceService", "chat", verdict), "status"),
        "desired": agent.apply(
            status_of("FleetNode", "mac-1", {"desired": {"revision": "x"}}), "status"
        ),
        "node": agent.apply(status_of("FleetNode", "mac-2", {"observed": {}}), "status"),
        "spec": agent.apply(document("InferenceService", "chat", {"modelRef": "mine"})),
        "secrets": agent.get("secrets", "-A"),
    }

    assert all("serverside-applied" not in text for text in said.values()), said
    assert "own node" in said["slice"]
    assert "only its own node's entry" in said["instance"]
    assert "not conditions" in said["endpoint"]
    assert "not conditions" in said["desired"]
    for by_rbac in ("lease", "node", "spec", "secrets"):
        assert "forbidden" in said[by_rbac], said[by_rbac]


def test_an_agent_leaves_another_nodes_entries_and_slices_where_they_are(
    cluster: Cluster, agent: Agent
) -> None:
    cluster.apply(slice_of("mac-2"))
    entries = {"instances": [{"node": "mac-2", "ready": True}]}
    cluster.kubectl(
        *("patch", "isvc", "chat", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": entries})),
    )
    stolen = slice_of("mac-2")
    stolen["metadata"]["labels"][f"{GROUP}/node"] = "mac-1"
    mine = {"instances": [{"node": "mac-1", "ready": True}]}

    taken = agent.apply(stolen)
    beside = agent.apply(status_of("InferenceService", "chat", mine), "status")

    assert "own node" in taken
    assert "serverside-applied" in beside
    found = cluster.json("get", "isvc", "chat")["status"]["instances"]
    assert sorted(entry["node"] for entry in found) == ["mac-1", "mac-2"]


@pytest.fixture
def llmkube(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with definitions of another owner, and two objects of them."""
    monkeypatch.chdir(tmp_path)
    install_llmkube(cluster)
    return cluster


def test_definitions_of_another_owner_are_refused_with_the_way_out(
    llmkube: Cluster, reconcile: Reconcile
) -> None:
    run = reconcile("install")

    assert run.code == BLOCKED
    assert "is there already and not ours (Helm release llmkube)" in run.err
    assert "nothing was written" in run.err
    assert ours(llmkube, namespaces=False) == set()


def test_a_take_over_lists_what_would_be_lost_and_asks_first(
    llmkube: Cluster, reconcile: Reconcile, tmp_path: Path
) -> None:
    run = reconcile("install", "--take-over")

    assert run.code == BLOCKED
    assert "InferenceService spec.speculative (1 object: default/rich): no such" in run.err
    assert "default/plain" not in run.err
    assert "--accept-field-loss" in run.err
    assert list(tmp_path.iterdir()) == []
    assert ours(llmkube, namespaces=False) == set()


def test_a_take_over_waits_for_live_controllers_to_be_gone(
    llmkube: Cluster, reconcile: Reconcile, tmp_path: Path
) -> None:
    start_controller(llmkube, "default")

    run = reconcile("install", "--take-over", "--accept-field-loss")

    assert run.code == BLOCKED
    assert (
        "Deployment default/llmkube-controller-manager of LLMKube is live; kubectl -n default"
        " scale deployment llmkube-controller-manager --replicas=0" in run.err
    )
    assert list(tmp_path.iterdir()) == []
    llmkube.kubectl("scale", "deployment", "llmkube-controller-manager", "--replicas=0")
    assert reconcile("install", "--take-over", "--accept-field-loss").code == OK


def test_a_take_over_leaves_the_objects_and_a_backup_that_restores_them(
    llmkube: Cluster, reconcile: Reconcile, tmp_path: Path
) -> None:
    uids = llmkube.kubectl("get", "inferenceservices", "-o", "jsonpath={.items[*].metadata.uid}")

    run = reconcile("install", "--take-over", "--accept-field-loss")

    assert run.code == OK, run.err
    assert "Helm release llmkube still lists it" in run.err
    assert "backup of 1 definition and 2 objects" in run.err
    live = llmkube.json("get", "crd", DEFINITION["metadata"]["name"])
    assert "annotations" not in live["metadata"]
    now = llmkube.kubectl("get", "isvc", "-o", "jsonpath={.items[*].metadata.uid}")
    assert now == uids
    [backup] = tmp_path.iterdir()
    saved = {_key(d): d for d in yaml.safe_load_all(backup.read_text())}
    assert saved["InferenceService", "rich"]["spec"]["speculative"] == {"n": 3}
    assert backup.stat().st_mode & 0o777 == 0o600
    assert "cluster prod: nothing to do" in reconcile("install").out  # the namespace is anybody's
    _restore(llmkube, list(saved.values()))
    assert llmkube.json("get", "isvc", "rich")["spec"]["speculative"] == {"n": 3}


def _restore(cluster: Cluster, documents: list[dict[str, Any]]) -> None:
    """Definitions first; the objects once the server goes by them."""
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    definitions = [d for d in documents if d["kind"] == "CustomResourceDefinition"]
    objects = [d for d in documents if d not in definitions]
    cluster.kubectl(*words, text="\n---\n".join(map(json.dumps, definitions)))
    text = "\n---\n".join(map(json.dumps, objects))
    wait_for(
        lambda: "rich serverside-applied" in cluster.kubectl(*words, text=text, check=False),
        "the objects restored",
    )


def test_an_uninstallation_refuses_while_the_fleet_has_objects_there(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    reconcile("install", "-C", URL)
    cluster.apply(document("Model", "gemma", {"source": "https://models.test/gemma.gguf"}))
    labels = {"app.kubernetes.io/managed-by": NAMESPACE, f"{GROUP}/fleet": "home"}
    spec = {"selector": {"app": "served"}, "ports": [{"port": 8080}]}
    metadata = {"name": "served", "namespace": "default", "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    copied = ("endpointslices", "-n", "default", "-l", f"{GROUP}/fleet=home")
    wait_for(lambda: names(cluster, *copied), "Kubernetes' own slice of it, with its labels")
    before = ours(cluster)

    run = reconcile("uninstall")
    wrong = reconcile("uninstall", "--confirm", "remove-000000")

    assert (run.code, wrong.code) == (BLOCKED, BLOCKED)
    listed = [line.partition("still there: ")[2] for line in run.err.splitlines()]
    assert [*filter(None, listed)] == ["Service default/served", "Model default/gemma"]
    assert "--confirm remove-000000 is for another list" in wrong.err
    assert ours(cluster) == before


def test_an_uninstallation_takes_documents_that_nothing_runs_by_with_it(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    reconcile("install", "-C", URL)
    node = document("FleetNode", "edge", {"kubernetes": {}})
    labels = {"app.kubernetes.io/managed-by": NAMESPACE, f"{GROUP}/fleet": "home"}
    cluster.apply(node | {"metadata": {"name": "edge", "labels": labels}})

    run = reconcile("uninstall")

    assert run.code == OK, run.err
    wait_none_of_ours(cluster)


def test_an_uninstallation_with_the_token_leaves_nothing_behind(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    reconcile("install", "-C", URL)
    reconcile("install", "--agent", "mac-1")
    cluster.apply(document("Model", "gemma", {"source": "https://models.test/gemma.gguf"}))
    labels = {"app.kubernetes.io/managed-by": NAMESPACE, f"{GROUP}/fleet": "home"}
    for name, marks in (("served", labels), ("foreign", {})):
        metadata = {"name": name, "namespace": "default", "labels": marks}
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    token = reconcile("uninstall").err.rpartition("--confirm ")[2].strip()

    run = reconcile("uninstall", "--confirm", token)

    assert run.code == OK, run.err
    wait_none_of_ours(cluster)
    assert "configmap/foreign" in names(cluster, "cm", "-n", "default")
    again = reconcile("uninstall")
    assert (again.code, again.out) == (OK, "cluster prod: nothing was installed there\n")


def test_an_uninstallation_can_leave_what_runs(cluster: Cluster, reconcile: Reconcile) -> None:
    reconcile("install", "-C", URL)
    cluster.apply(document("Model", "gemma", {"source": "https://models.test/gemma.gguf"}))

    run = reconcile("uninstall", "--keep-services")

    assert run.code == OK
    left = ours(cluster)
    kinds = {name.partition("/")[0].partition(".")[0] for name in left}
    assert kinds == {"customresourcedefinition", "namespace", "priorityclass"}, left
    assert names(cluster, "mdl") == {f"model.{GROUP}/gemma"}


def test_helm_can_take_over_an_installation_and_give_it_back(
    cluster: Cluster, reconcile: Reconcile
) -> None:
    """As docs/kubernetes-install.md has it."""
    reconcile("install", "-C", URL)
    cluster.apply(document("Model", "gemma", {"source": "https://models.test/gemma.gguf"}))
    at = ("fleet", "-n", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig))
    values = set_values({"git.url": URL, "cluster": "prod"})
    beside = helm("install", *at, str(CHART), *values, check=False)
    assert "cannot be imported into the current release" in beside

    helm("install", *at, str(CHART), *values, "--take-ownership")
    held = reconcile("install", "-C", URL)
    wrong = helm(
        "upgrade", *at, str(CHART), "--reuse-values", "--set", "replicas=many", check=False
    )
    helm("upgrade", *at, str(CHART), "--reuse-values", "--set", "replicas=3")
    helm("rollback", *at, "1")
    rolled_back = cluster.json("get", "deploy", "fleet-reconciler", "-n", NAMESPACE)
    helm("uninstall", *at)
    back = reconcile("install", "-C", URL)

    assert "Helm" in held.out + held.err, held
    assert "replicas" in wrong
    assert "want integer" in wrong
    assert rolled_back["spec"]["replicas"] == 1
    assert back.code == OK, back
    assert "deployment.apps/fleet-reconciler" in names(cluster, "deploy", "-n", NAMESPACE)
    assert names(cluster, "mdl") == {f"model.{GROUP}/gemma"}


def test_words_that_make_no_sense_are_refused(reconcile: Reconcile) -> None:
    assert reconcile("install", "--accept-field-loss").code == USAGE
    assert reconcile("install", "--server", "https://x.test").code == USAGE
    assert reconcile("install", "--secret", "git-token-file=a/b").code == USAGE
    assert reconcile("install", "-C", URL, "--secret", "nonsense=a/b").code == USAGE
    assert reconcile("install", "--agent", "Not_A_Node").code == USAGE
    assert reconcile("install", "--cluster", "b").code == USAGE
