"""Whatever secrets people put into a cluster's objects, no output, status, event or file of ours
repeats them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.fleets import document, model, service
from tests.support.installed import rights_of
from tests.support.reconciler import Finished, Machine
from tests.support.repos import Repo
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

OK, CHANGES, BLOCKED = 0, 2, 3
CANARY = "hf_C4n4ryS3cretValue"
POOL = {"kubernetes": {"cluster": "prod"}, "hardware": {"memory": "64Gi"}}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
HOLD = "inference.llmkube.dev/hold"


def test_a_secret_in_an_edited_object_is_repeated_nowhere(
    installed_cluster: Cluster, machine: Machine, tmp_path: Path
) -> None:
    cluster = installed_cluster
    cluster.add_node("worker")
    own = rights_of(cluster, tmp_path)
    repository = Repo.create(tmp_path)
    repository.publish(
        {
            "fleet.yaml": document("Fleet", "home", {}),
            "pool.yaml": document("FleetNode", "edge", POOL),
            "gemma.yaml": model("gemma"),
            "chat.yaml": service("chat", "gemma", placement={"nodes": ["edge"]}),
        }
    )
    ran: list[Finished] = []

    def reconcile(*words: str) -> Finished:
        at = ("--cluster", "prod=test", "--kubeconfig", str(own))
        ran.append(machine.reconcile(*words, "-C", str(repository.work), *at))
        return ran[-1]

    def look() -> None:
        """All that tells what is different."""
        reconcile("--dry-run")
        reconcile("--dry-run", "-o", "json")

    assert reconcile("--once", "--timeout", "60s").code == OK
    _hide_in(cluster)
    look()
    drift = ran[-2].out
    cluster.kubectl("annotate", "deploy/chat", f"{HOLD}=true")
    look()
    reconcile("--once", "--timeout", "5s")
    held = ran[-1]
    cluster.kubectl("annotate", "deploy/chat", f"{HOLD}-")
    with_echo = _echoing(cluster)
    wait_for(lambda: CANARY in _refusal(cluster), "admission repeats it")
    look()
    reconcile("--once", "--timeout", "5s")
    refused = ran[-1]
    cluster.kubectl("delete", *with_echo)
    wait_for(lambda: CANARY not in _refusal(cluster), "admission is over")
    back = reconcile("--once", "--timeout", "60s")

    assert "env[HF_TOKEN] unset -> {name: HF_TOKEN, value: (sensitive, changed)}" in drift
    assert "none, (sensitive, changed)] by kubectl" in drift
    assert held.code == BLOCKED
    assert "Held" in held.out + held.err
    assert "denied request" in refused.out + refused.err
    assert back.code == OK, back.out + back.err
    assert CANARY not in json.dumps(cluster.json("get", "deploy", "chat")["spec"])
    token = json.loads(own.read_text())["users"][0]["user"]["token"]
    said = {"output": "".join(run.out + run.err for run in ran), **dict(_told(cluster))}
    said |= {str(path): path.read_bytes().decode(errors="replace") for path in _files(machine)}
    assert [where for where, text in said.items() if CANARY in text] == []
    assert [where for where, text in said.items() if token in text] == []


def _hide_in(cluster: Cluster) -> None:
    """In every place of an object of ours where somebody may put one."""
    cluster.kubectl("set", "env", "deploy/chat", "-c", "engine", f"HF_TOKEN={CANARY}")
    sidecar = {
        "name": "proxy",
        "image": "proxy:1",
        "command": ["/proxy", CANARY],
        "args": [f"--token={CANARY}"],
        "env": [{"name": "KEY", "value": CANARY}],
        "livenessProbe": {
            "httpGet": {
                "port": 1,
                "httpHeaders": [{"name": "Authorization", "value": f"Bearer {CANARY}"}],
            }
        },
    }
    at = "/spec/template/spec/containers"
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": f"{at}/-", "value": sidecar},
        {"op": "add", "path": f"{at}/0/args/-", "value": f"--api-key={CANARY}"},
    ]
    cluster.kubectl("patch", "deploy/chat", "--type=json", "-p", json.dumps(patch))
    for thing in ("deploy/chat", "svc/chat", "isvc/chat", "model/gemma"):
        words = json.dumps({"spec": {"token": CANARY}})
        cluster.kubectl("annotate", "--overwrite", thing, f"{LAST_APPLIED}={words}")
    edit = [{"op": "add", "path": "/spec/env", "value": [{"name": "KEY", "value": CANARY}]}]
    cluster.kubectl("patch", "isvc/chat", "--type=json", "-p", json.dumps(edit))


def _echoing(cluster: Cluster) -> tuple[str, ...]:
    """An admission whose refusals repeat the object; what to delete of it afterwards."""
    old = "oldObject.spec.template.spec.containers[0].env.map(e, e.?value.orValue(''))"
    rules = [
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["deployments"],
        }
    ]
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "echo"},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [
                {"expression": "false", "messageExpression": f"'env was ' + {old}.join(' ')"}
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "echo"},
        "spec": {"policyName": "echo", "validationActions": ["Deny"]},
    }
    cluster.apply(json.dumps(policy), json.dumps(binding))
    kind = "validatingadmissionpolicy"
    return (f"{kind}/echo", f"{kind}binding/echo")


def _refusal(cluster: Cluster) -> str:
    words = ("annotate", "--overwrite", "deploy/chat", "x=y", "--dry-run=server")
    return cluster.kubectl(*words, check=False)


def _told(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """What we say in the cluster."""
    for kind in ("isvc", "models", "fleets", "fleetnodes"):
        for found in cluster.json("get", kind, "-A")["items"]:
            name = f"status of {kind} {found['metadata']['name']}"
            yield name, json.dumps(found.get("status", {}))
    for kind in ("events", "leases", "cm"):
        yield kind, json.dumps(cluster.json("get", kind, "-A"))


def _files(machine: Machine) -> Iterator[Path]:
    return (path for path in machine.root.rglob("*") if path.is_file())
