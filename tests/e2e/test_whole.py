"""The whole way: install, push, a cluster and a Mac that run it, and nothing left of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.beside_cluster import own_address
from tests.support.client import complete
from tests.support.cluster import Cluster
from tests.support.fleets import document, model, node, service
from tests.support.installed import kubeconfig_of
from tests.support.ports import own_port
from tests.support.reconciler import Finished, Machine, Running
from tests.support.repos import Repo
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, CHANGES = 0, 2
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "plan.json").read_text())
OURS = "app.kubernetes.io/managed-by=fleet-reconciler"
# What Kubernetes writes for itself at any time.
PASSING = ("events", "events.events.k8s.io", "componentstatuses")


@dataclass(frozen=True, slots=True)
class Whole:
    """A cluster where `reconcile install` was run, a remote, and an agent for the node `mac`."""

    cluster: Cluster
    repo: Repo
    machine: Machine  # of the reconciler, with the rights that were installed
    mac: Machine
    words: tuple[str, ...]
    before: frozenset[str]  # what was in the cluster

    def reconcile(self, *words: str) -> Finished:
        return self.machine.reconcile(*words, *self.words)

    def loop(self) -> Running:
        """What the installed Deployment would run."""
        return self.machine.start(*self.words)

    def push(self, **files: str) -> str:
        return self.repo.publish({f"{name}.yaml": text for name, text in files.items()}, "Change")

    def everything(self) -> frozenset[str]:
        """Every object of every kind that can be listed, in every namespace."""
        kinds = self.cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        wanted = ",".join(kind for kind in kinds if kind not in PASSING)
        found = self.cluster.json("get", wanted, "-A")["items"]
        names = ((o["kind"], o["metadata"].get("namespace", ""), o["metadata"]) for o in found)
        return frozenset(f"{kind} {space}/{metadata['name']}" for kind, space, metadata in names)

    def objects(self) -> set[tuple[str, str]]:
        """(kind, name) of what the fleet has in the namespace of its services."""
        kinds = "isvc,mdl,deploy,svc,configmaps,jobs,pvc,hpa"
        found = self.cluster.json("get", kinds, "-n", "default", "-l", OURS)["items"]
        return {(o["kind"], o["metadata"]["name"]) for o in found}

    def wait(self, what: str, condition: str, timeout_s: float = PATIENCE_S) -> str:
        """`kubectl wait`, and what it says where it gives up."""
        words = ("wait", what, f"--for=condition={condition}", f"--timeout={timeout_s:g}s")
        return self.cluster.kubectl(*words, check=False)


@pytest.fixture
def whole(tmp_path: Path, cluster: Cluster, machine: Machine, tiny: Path) -> Iterator[Whole]:
    cluster.remove_system()
    nvidia = {"nvidia.com/gpu": "1"}
    cluster.add_node("l4-0", {"gpu": "l4"}, **nvidia)
    cluster.add_node("l4-1", {"gpu": "l4"}, **nvidia)
    repo = Repo.create(tmp_path / "git")
    port = own_port()
    agent = {
        "url": f"http://127.0.0.1:{port}",
        "hostIP": own_address(),
        "expose": "open",
        "clusters": ["prod"],
    }
    pool = {"cluster": "prod", "nodeSelector": {"gpu": "l4"}, "count": 2}
    device = {"vendor": "NVIDIA", "product": "L4", "arch": "sm_89", "memory": "23Gi"}
    repo.publish(
        {
            "fleet.yaml": document("Fleet", "home", {}),
            "l4.yaml": document(
                "FleetNode",
                "l4",
                {"kubernetes": pool, "hardware": {"memory": "64Gi", "devices": [device]}},
            ),
            "mac.yaml": node("mac", agent=agent, hardware={"memory": "16Gi"}),
            "tiny.yaml": model("tiny", source=f"file://{tiny}"),
            "phi.yaml": model("phi", sha256="ab" * 32),
        },
        "Begin",
    )
    found = Whole(cluster, repo, machine, machine, (), frozenset())
    before = found.everything()
    words = ("--cluster", "prod=test", "--kubeconfig", str(cluster.kubeconfig))
    installed = machine.reconcile("install", *words)
    account = machine.reconcile("install", "--agent", "mac", *words)
    assert (installed.code, account.code) == (OK, OK), installed.err + account.err
    folder = tmp_path / "mac"
    folder.mkdir()
    (folder / "kubeconfig").write_text(account.out)
    rights = kubeconfig_of(cluster, "fleet-reconciler", tmp_path)
    words = ("-C", str(repo.remote), "--cluster", "prod=test", "--kubeconfig", str(rights))
    with Machine(folder) as mac:
        named = ("--kubernetes", "--kubeconfig", str(folder / "kubeconfig"), "--node", "mac")
        mac.daemon(*named, env={"FLEET_PORT": str(port)})
        wait_for(lambda: bool(mac.node_state()), "the agent's state")
        yield Whole(cluster, repo, machine, mac, words, before)


def two_services() -> dict[str, str]:
    return {
        "chat": service("chat", "phi", replicas=2, placement={"nodes": ["l4"]}),
        "mini": service("mini", "tiny", contextSize=256, placement={"nodes": ["mac"]}),
    }


def test_a_push_becomes_pods_a_process_and_a_name_for_each_and_leaves_nothing(
    whole: Whole,
) -> None:
    _plan_agrees_with_what_comes(whole)
    _each_has_one_name_and_one_port(whole)
    _ready_is_true_when_and_only_when_it_is_so(whole)
    _a_scaled_service_is_drift(whole)
    _nothing_is_left(whole)


def _plan_agrees_with_what_comes(whole: Whole) -> None:
    whole.push(**two_services())
    plan = whole.reconcile("--dry-run", "-o", "json")
    text = whole.reconcile("--dry-run")

    loop = whole.loop()
    loop.wait_said("all 2 targets are on ")

    told = plan.json()
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert (plan.code, text.code) == (CHANGES, CHANGES)
    assert "cluster prod " in text.out
    assert "node mac " in text.out
    created = [c for c in told["changes"] if c["action"] == "create"]
    assert {c["target"] for c in created} == {"cluster/prod", "node/mac"}
    named = [c["object"] for c in created if "object" in c]
    planned = {(o["kind"], o["name"]) for o in named if o.get("namespace") == "default"}
    assert whole.objects() == planned
    assert told["summary"]["create"] == len({(c["target"], c["ref"]["name"]) for c in created})
    after = whole.reconcile("--dry-run")
    assert (after.code, "nothing to do" in after.out) == (OK, True), after.out


def _each_has_one_name_and_one_port(whole: Whole) -> None:
    whole.cluster.wait("isvc", "--all", "--for=condition=Ready")
    assert len(whole.cluster.json("get", "isvc")["items"]) == 2
    (container, *_) = _pod_spec(whole)["containers"]
    (port,) = whole.cluster.json("get", "service", "chat")["spec"]["ports"]
    listens = [p["containerPort"] for p in container["ports"]]
    assert _endpoint(whole, "chat").startswith(f"http://chat.default.svc:{port['port']}/")
    assert port["port"] in listens

    mini = whole.mac.wait_ready("mini")
    words = ("get", "endpointslices", "-l", "kubernetes.io/service-name=mini")
    (found,) = whole.cluster.json(*words)["items"]
    (endpoint,), (of_process,) = found["endpoints"], found["ports"]
    assert endpoint["conditions"]["ready"] is True
    assert of_process["port"] == mini.port
    assert complete(f"http://{endpoint['addresses'][0]}:{of_process['port']}")
    (name,) = whole.cluster.json("get", "service", "mini")["spec"]["ports"]
    assert _endpoint(whole, "mini").startswith(f"http://mini.default.svc:{name['port']}/")


def _ready_is_true_when_and_only_when_it_is_so(whole: Whole) -> None:
    whole.cluster.kubectl("cordon", "l4-0", "l4-1")
    whole.cluster.kubectl("delete", "pods", "-l", "inference.llmkube.dev/inference-service=chat")

    assert "condition met" in whole.wait("isvc/chat", "Ready=False")
    assert "timed out" in whole.wait("isvc/chat", "Ready", 1)
    mini = whole.cluster.json("get", "isvc", "mini")["status"]["conditions"]
    assert [c["status"] for c in mini if c["type"] == "Ready"] == ["True"]
    whole.cluster.kubectl("uncordon", "l4-0", "l4-1")
    assert "condition met" in whole.wait("isvc/chat", "Ready")


def _a_scaled_service_is_drift(whole: Whole) -> None:
    loop = whole.machine.running()[-1]

    whole.cluster.kubectl("scale", "isvc/chat", "--replicas=1")

    loop.wait_planned("spec.replicas 2 -> 1 by kubectl")
    replicas = ("get", "isvc", "chat")
    wait_for(lambda: whole.cluster.json(*replicas)["spec"]["replicas"] == 2, "taken back")
    assert whole.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 2


def _nothing_is_left(whole: Whole) -> None:
    loop = whole.machine.running()[-1]
    for name in two_services():
        (whole.repo.work / f"{name}.yaml").unlink()
    whole.repo.commit("Remove both")

    whole.mac.wait_gone("mini")
    slices = ("get", "endpointslices", "-l", "inference.llmkube.dev/node=mac", "-o", "name")
    wait_for(lambda: not whole.objects(), "the services' objects gone")
    wait_for(lambda: not whole.cluster.kubectl(*slices), "the node's endpoints gone")
    assert loop.end() == OK
    for agent in whole.mac.running():
        agent.end()
    admin = ("--cluster", "prod=test", "--kubeconfig", str(whole.cluster.kubeconfig))
    gone = whole.machine.reconcile("uninstall", *admin)

    assert gone.code == OK, gone.err
    left: set[str] = set()

    def is_as_before() -> bool:
        left.clear()
        try:
            left.update(whole.everything() - whole.before)
        except AssertionError as e:  # a definition went after its kind was listed
            left.add(str(e))
        return not left

    try:
        wait_for(is_as_before)
    except AssertionError:
        raise AssertionError(f"still there: {sorted(left)}") from None


def _pod_spec(whole: Whole) -> dict[str, Any]:
    found = whole.cluster.json("get", "deployment", "chat")["spec"]["template"]["spec"]
    return dict(found)


def _endpoint(whole: Whole, name: str) -> str:
    return str(whole.cluster.json("get", "isvc", name)["status"]["endpoint"])
