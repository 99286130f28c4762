"""docs/kubernetes.md, typed as it stands: every command block, by somebody new with a cluster.

What a kubelet would do is played here: the program that `reconcile install` puts into the cluster
is started as a process, with the words and the rights that it has there. So are Flux and Argo CD:
kubectl applies by their names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.beside_cluster import own_address
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.cluster_wipe import SYSTEM
from tests.support.fleets import service
from tests.support.git_http import git_server
from tests.support.installed import kubeconfig_of
from tests.support.llmkube import NAMESPACE as LLMKUBE
from tests.support.llmkube import install_llmkube, start_controller
from tests.support.ports import own_port
from tests.support.real_models import SMOLLM2, link_model
from tests.support.reconciler import Machine, Running
from tests.support.repos import run_git
from tests.support.typed_pages import File, Page, Shell, shape, shell
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

PAGE = Page.read("docs/kubernetes.md")
README = Page.read("README.md")
INSTALLED = Page.read("docs/kubernetes-install.md")
PROGRAMS = Path(sys.executable).parent
(URL,) = set(re.findall(r"https://git\.example\.com/\S+\.git", PAGE.text))
(HOST_IP,) = set(re.findall(r"hostIP: (\S+)", PAGE.text))
CHANGES, BLOCKED = 2, 3


@dataclass
class Typist:
    """Somebody with a shell, a kubeconfig with context `prod`, and an empty repository."""

    cluster: Cluster
    machine: Machine
    shell: Shell
    url: str
    said: list[tuple[str, str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.machine.root / "home/fleet"

    def follow(self, heading: str) -> None:
        """Type and write what a section says, and look whether it prints what is shown."""
        section, before = PAGE.section(heading), len(self.said)
        for step in section.steps:
            if isinstance(step, File):
                text = step.text.replace(HOST_IP, own_address())
                (self.folder / step.name).write_text(text)
            else:
                self.type(step.text, step.code)
        printed = [shape(line) for _, text in self.said[before:] for line in text.splitlines()]
        assert [line for line in section.shown if not _is_printed(shape(line), printed)] == []

    def type(self, line: str, expected: int = 0) -> str:
        code, printed = self.shell.type(line.replace(URL, self.url))
        said = "\n".join(running.err[-3000:] for running in self.machine.running())
        assert code == expected, f"{line}\nended with {code}:\n{printed}\n{said}{self._log()}"
        self.said.append((line, printed))
        return printed

    def start_program(self) -> Running:
        """As a kubelet would: what the Deployment says, with the account's own rights."""
        found = self.cluster.json("get", "deployment", "fleet-reconciler", "-n", SYSTEM)
        pod = found["spec"]["template"]["spec"]
        own = kubeconfig_of(
            self.cluster, pod["serviceAccountName"], self.machine.root, context="prod"
        )
        words = [w.replace("0.0.0.0:8080", "127.0.0.1:0") for w in pod["containers"][0]["args"]]
        return self.machine.start(*words, "--kubeconfig", str(own), env={"POD_NAME": "in-cluster"})

    def _log(self) -> str:
        log = self.machine.root / "home/agent.log"
        return log.read_text()[-3000:] if log.is_file() else ""


def _is_printed(shown: str, printed: list[str]) -> bool:
    """`...` at the end of a line stands for its rest."""
    begin = shown.removesuffix("...")
    return any(line == shown or (begin != shown and line.startswith(begin)) for line in printed)


@pytest.fixture
def typist(tmp_path: Path, cluster: Cluster, machine: Machine) -> Iterator[Typist]:
    cluster.remove_system()
    remote = tmp_path / "fleet.git"
    run_git(tmp_path, "init", "-q", "--bare", "--initial-branch=main", str(remote))
    run_git(remote, "config", "http.receivepack", "true")
    cluster.add_node("worker-1", {"kubernetes.io/os": "linux"})
    config = json.loads(cluster.kubeconfig.read_text())
    config["contexts"][0]["name"] = config["current-context"] = "prod"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    environment = machine.environment | {
        "PATH": os.pathsep.join([str(PROGRAMS), str(cluster.programs), os.environ["PATH"]]),
        "KUBECONFIG": str(kubeconfig),
        "FLEET_PORT": str(own_port()),
    }
    with ExitStack() as stack:
        server = stack.enter_context(git_server(tmp_path))
        opened = stack.enter_context(shell(environment, machine.root / "home"))
        yield Typist(cluster, machine, opened, server.url("fleet.git"))
        opened.type("kill %1")  # the agent of the page, where one was started


@pytest.fixture
def pushed(typist: Typist) -> Typist:
    """The repository of the page with a pushed service, and no reconciler anywhere."""
    for step in PAGE.section("First service").steps:
        if isinstance(step, File):
            (typist.folder / step.name).write_text(step.text)
        elif step.text.startswith(("git ", "cd ", "reconcile deploy")):
            typist.type(step.text, step.code)
    return typist


def ours(cluster: Cluster) -> set[str]:
    """Everything that says that it is ours and is not going away."""
    kinds = "crd,clusterroles,clusterrolebindings,roles,rolebindings,sa,leases,priorityclasses"
    kinds += ",deploy,svc,cm,jobs,pvc,endpointslices,secrets"
    label = "app.kubernetes.io/managed-by in (fleet-reconciler,fleet-agent)"
    return set(cluster.kubectl("get", kinds, "-A", "-l", label, "-o", "name").split())


def test_from_nothing_to_a_cluster_and_a_mac_and_back_to_nothing(typist: Typist) -> None:
    link_model(SMOLLM2, typist.machine.state / "models")

    typist.follow("Install")
    program = typist.start_program()
    typist.follow("First service")
    typist.follow("Change it, and let another program change it")
    typist.follow("A Mac beside a cluster")

    assert typist.machine.wait_ready("chat").pid
    endpoint = typist.cluster.json(
        "get", "endpointslices", "-A", "-l", "inference.llmkube.dev/node"
    )
    (one,) = endpoint["items"]
    assert one["endpoints"][0]["addresses"] == [own_address()]

    typist.follow("Uninstall")

    assert program.process.poll() is None  # it stands by: no kubelet ends it
    program.end()
    wait_for(lambda: ours(typist.cluster) == set(), "nothing of ours")


def test_the_block_of_the_readme_puts_a_reconciler_there_which_serves(pushed: Typist) -> None:
    """Its service is the one of the page."""
    block, _ = re.findall(
        r"^```\n(.*?)^```", README.section("A cluster beside them").text, re.MULTILINE | re.DOTALL
    )
    install, plan, *waits = (
        line.replace("https://git.example/fleet.git", URL)
        .replace("ADDRESS", "registry.test/fleet:1")
        .replace("inferenceservice/chat", "inferenceservice/smollm2-135m")
        for line in block.splitlines()
    )

    pushed.type(install)
    planned = pushed.type(plan, CHANGES)
    program = pushed.start_program()
    for wait in waits:
        pushed.type(wait)

    assert len(waits) == 2
    assert "InferenceService default/smollm2-135m" in planned
    assert "registry.test/fleet:1" in pushed.cluster.kubectl("get", "deploy", "-A", "-o", "yaml")
    assert program.end() == 0


@pytest.mark.parametrize(
    ("heading", "manager"),
    [("Flux applies plain files", "kustomize-controller"), ("With Argo CD", "argocd-controller")],
)
def test_rendered_files_are_another_programs_and_have_no_difference_after_it(
    pushed: Typist, heading: str, manager: str
) -> None:
    typist, cluster = pushed, pushed.cluster
    steps = [s for s in PAGE.section(heading).steps if not isinstance(s, File)]
    for step in steps:
        if step.text.startswith(("reconcile render", "git ")):
            typist.type(step.text, step.code)

    apply_as(typist, manager, typist.folder / "rendered/prod")

    cluster.wait("--for=condition=Available", "deployment/smollm2-135m")
    again = typist.type("reconcile render -o rendered")
    assert "0 written" in again
    words = ("diff", "--server-side", f"--field-manager={manager}", "-R", "-f")
    assert cluster.kubectl(*words, str(typist.folder / "rendered/prod")) == ""
    managers = {e["manager"] for e in managed_fields(cluster, "deployment", "smollm2-135m")}
    assert "fleet-reconciler" not in managers
    typist.type("reconcile install --cluster prod")
    said = typist.type("reconcile --cluster prod --once --timeout 20s", BLOCKED)
    assert f"NotOurs: Deployment default/smollm2-135m is there and was made by {manager}" in said
    assert managers == {e["manager"] for e in managed_fields(cluster, "deployment", "smollm2-135m")}


@pytest.mark.parametrize(
    ("heading", "manager", "mark"),
    [
        (
            "Flux applies the fleet's documents",
            "kustomize-controller",
            {"labels": {"kustomize.toolkit.fluxcd.io/name": "models"}},
        ),
        (
            "With Argo CD",
            "argocd-controller",
            {
                "labels": {"app.kubernetes.io/instance": "models"},
                "annotations": {"argocd.argoproj.io/tracking-id": "models:x"},
            },
        ),
    ],
)
def test_documents_that_another_program_applies_stay_its_own_and_are_served(
    pushed: Typist, heading: str, manager: str, mark: dict[str, dict[str, str]]
) -> None:
    typist, cluster = pushed, pushed.cluster
    for step in PAGE.section(heading).steps:
        if not isinstance(step, File) and step.text.startswith("reconcile install"):
            typist.type(step.text, step.code)
    program = typist.start_program()

    applied = apply_as(typist, manager, typist.folder, mark)

    cluster.wait("--for=condition=Ready", "inferenceservice/smollm2-135m")
    for kind in ("inferenceservice", "model"):
        entries = managed_fields(cluster, kind, "smollm2-135m")
        writers = {(e["manager"], e.get("subresource", "")) for e in entries}
        assert (manager, "") in writers
        assert ("fleet-reconciler", "") not in writers
    words = ("diff", "--server-side", f"--field-manager={manager}", "-f", "-")
    assert cluster.kubectl(*words, text=applied) == ""
    live = cluster.json("get", "inferenceservice", "smollm2-135m")["metadata"]
    made = cluster.json("get", "deployment", "smollm2-135m")["metadata"]
    for field_name, marks in mark.items():
        assert marks.items() <= live[field_name].items()
        assert not marks.keys() & made.get(field_name, {}).keys()  # its prune leaves ours alone

    cluster.kubectl("delete", "inferenceservice", "smollm2-135m")  # as its prune would

    cluster.wait("--for=delete", "deployment/smollm2-135m")
    assert program.process.poll() is None


def test_coming_from_llmkube(typist: Typist, tmp_path: Path) -> None:
    cluster = typist.cluster
    install_llmkube(cluster)
    cluster.namespace(LLMKUBE)
    start_controller(cluster, LLMKUBE)
    wait_for(lambda: pods_of(cluster, LLMKUBE), "its pod")

    typist.follow("Coming from LLMKube")

    said = dict(typist.said)
    assert "plain" in said["kubectl get inferenceservices"]
    home = ClusterFleet.create(tmp_path / "home", cluster, typist.machine)
    cluster.add_node("edge-1", {"pool": "edge"})
    home.push(plain=service("plain", "phi"))
    assert "NotOurs: InferenceService default/plain is there" in home.dry_run().out
    cluster.kubectl("delete", "inferenceservice", "plain")
    home.once()
    cluster.wait("--for=condition=Ready", "inferenceservice/plain")


def test_the_network_policy_of_the_page_is_taken_and_means_our_pods(pushed: Typist) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", INSTALLED.text, re.DOTALL)
    policy = yaml.safe_load(text)

    taken = pushed.cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=text)

    assert policy["metadata"]["name"] in taken
    pushed.type("reconcile render -o rendered")
    (file,) = (pushed.folder / "rendered/prod").rglob("*.yaml")
    made = {d["kind"]: d for d in yaml.safe_load_all(file.read_text())}
    pod = made["Deployment"]["spec"]["template"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {p["containerPort"] for c in _containers(pod) for p in c.get("ports", ())}
    assert {p["port"] for rule in policy["spec"]["ingress"] for p in rule["ports"]} == ports


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]


def apply_as(
    typist: Typist, manager: str, folder: Path, mark: dict[str, dict[str, str]] | None = None
) -> str:
    """What Flux and Argo CD do with a folder: every document, by server-side apply, marked."""
    documents: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.yaml")):
        documents += [d for d in yaml.safe_load_all(path.read_text()) if d]
    for document in documents:
        for name, marks in (mark or {}).items():
            document["metadata"].setdefault(name, {}).update(marks)
        document["metadata"].setdefault("namespace", "default")
    text = "\n---\n".join(map(json.dumps, documents))
    words = ("apply", "--server-side", f"--field-manager={manager}", "-f", "-")
    typist.cluster.kubectl(*words, text=text)
    return text


def managed_fields(cluster: Cluster, kind: str, name: str) -> list[dict[str, Any]]:
    found = cluster.json("get", kind, name, "--show-managed-fields")
    entries: list[dict[str, Any]] = found["metadata"]["managedFields"]
    return entries


def pods_of(cluster: Cluster, namespace: str) -> list[Any]:
    found: list[Any] = cluster.json("get", "pods", "-n", namespace)["items"]
    return found
