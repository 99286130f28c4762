"""The real KEDA scales a service to zero pods and back, and nothing of it is drift.

KEDA is a checkout of it, whose programs Go builds (twenty minutes the first time):
`KEDA=../keda make test T=tests/e2e/test_keda_real.py`
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.certificates import self_signed
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.fleets import service
from tests.support.ports import own_ports
from tests.support.reconciler import Machine
from tests.support.wait import wait_for

SOURCE = os.environ.get("KEDA", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.cluster,
    pytest.mark.skipif(not SOURCE, reason="KEDA names no checkout of it"),
]
OK = 0
ASKS = {"type": "kubernetes-workload", "metadata": {"podSelector": "asks=yes", "value": "1"}}
ZERO = {"pollingInterval": 1, "cooldownPeriod": 1, "initialCooldownPeriod": 1, "triggers": [ASKS]}
SCALED = {"minReplicas": 0, "maxReplicas": 3, "keda": ZERO}
CLIENT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "client", "labels": {"asks": "yes"}},
    "spec": {"containers": [{"name": "client", "image": "client:1"}]},
}
NAMES = ("operator", "webhooks")
PAUSED = "autoscaling.keda.sh/paused-replicas"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keda")
    commands = [f"./cmd/{name}" for name in NAMES]
    subprocess.run(("go", "build", "-o", f"{made}/", *commands), cwd=SOURCE, check=True)
    return made


@pytest.fixture
def home(
    tmp_path: Path, own_cluster: Cluster, machine: Machine, programs: Path
) -> Iterator[ClusterFleet]:
    own_cluster.kubectl("create", "namespace", "keda")
    definitions = Path(SOURCE, "config", "crd", "bases")
    own_cluster.kubectl("apply", "--server-side", "-f", str(definitions))
    wait_for(lambda: "items" in _listed(own_cluster), "ScaledObjects are served")
    machine.reconcile(
        *("install", "--cluster", "prod=test", "--kubeconfig", str(own_cluster.kubeconfig))
    )
    with running(programs, own_cluster, tmp_path):
        yield ClusterFleet.create(tmp_path, own_cluster, machine)


def test_keda_scales_a_service_to_zero_and_back_and_nothing_of_it_is_drift(
    home: ClusterFleet,
) -> None:
    cluster = home.cluster
    home.push(chat=service("chat", "phi", autoscaling={"maxReplicas": 3}))
    home.once()
    home.push(chat=service("chat", "phi", autoscaling=SCALED))
    turned = home.dry_run("-o", "json").json()
    home.once()
    assert turned["blocked"] == [], "KEDA's admission refuses it beside the other autoscaler"

    wait_for(partial(is_at, cluster, 0), "KEDA ends its pod")
    home.once()
    assert ready(cluster) == ("True", "ScaledToZero")
    assert home.dry_run().code == OK
    assert [hpa["metadata"]["name"] for hpa in cluster.json("get", "hpa")["items"]] == [
        "keda-hpa-chat"
    ]

    cluster.kubectl("annotate", "scaledobject", "chat", f"{PAUSED}=0")
    home.run("--once", "--timeout", "1s")
    assert ready(cluster) == ("False", "ScaledToZero")
    cluster.kubectl("annotate", "scaledobject", "chat", f"{PAUSED}-")

    cluster.apply(CLIENT)
    wait_for(partial(is_at, cluster, 1), "KEDA starts one for who asks")
    home.once()
    assert ready(cluster) == ("True", "Ready")
    assert home.dry_run().code == OK

    cluster.kubectl("delete", "pod", "client", "--force")
    wait_for(partial(is_at, cluster, 0), "KEDA ends it again")
    home.push(chat=service("chat", "phi"))
    home.once()
    assert is_at(cluster, 1)
    assert home.dry_run().code == OK
    wait_for(lambda: not cluster.json("get", "scaledobjects,hpa")["items"], "KEDA let go of it")


def _listed(cluster: Cluster) -> str:
    return cluster.kubectl("get", "scaledobjects,triggerauthentications", "-o=json", check=False)


def is_at(cluster: Cluster, pods: int) -> bool:
    return bool(cluster.json("get", "deployment", "chat")["spec"]["replicas"] == pods)


def ready(cluster: Cluster) -> tuple[str, str]:
    conditions = cluster.json("get", "isvc", "chat")["status"]["conditions"]
    (found,) = (c for c in conditions if c["type"] == "Ready")
    return found["status"], found["reason"]


@contextmanager
def running(programs: Path, cluster: Cluster, folder: Path) -> Iterator[None]:
    """Its operator and its admission, beside the cluster."""
    cert, key = self_signed(folder / "certs")
    for name, source in {"ca.crt": cert, "tls.crt": cert, "tls.key": key}.items():
        shutil.copy(source, cert.parent / name)
    asked, served = own_ports(2)
    none = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--cert-dir")
    own = {
        "operator": (f"--metrics-service-bind-address=127.0.0.1:{served}",),
        "webhooks": (f"--port={asked}",),
    }
    about = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda", "KUBECONFIG": str(cluster.kubeconfig)}
    environment = {**os.environ, **about, "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda"}
    with ExitStack() as ended:
        for name in NAMES:
            log = ended.enter_context((folder / f"{name}.log").open("ab"))
            words = (programs / name, *none, str(cert.parent), *own[name])
            program = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
            ended.callback(program.wait, 30)
            ended.callback(program.terminate)
        cluster.apply(admission(asked, cert))
        yield


def admission(port: int, cert: Path) -> str:
    path = "validate-keda-sh-v1alpha1-scaledobject"
    authority = base64.b64encode(cert.read_bytes()).decode()
    rule = {
        "apiGroups": ["keda.sh"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["scaledobjects"],
    }
    hook = {
        "name": "vscaledobject.kb.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": authority},
        "failurePolicy": "Fail",
        "rules": [rule],
        "sideEffects": "None",
    }
    return json.dumps(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "keda-admission"},
            "webhooks": [hook],
        }
    )
