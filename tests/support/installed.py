"""`reconcile install` in a cluster, and a kubeconfig with the reconciler's own rights.

install(cluster)                                   # the fixture `installed_cluster` has it already
kubeconfig = rights_of(cluster, tmp_path)          # who uses it may do what the rendered RBAC says
"""

from __future__ import annotations

import json
from pathlib import Path

from reconciler.cli import main
from tests.support.cluster import Cluster

NAMESPACE = "fleet-reconciler"


def install(cluster: Cluster) -> None:
    """Everything but what runs."""
    code = main(["install", "--cluster", "prod=test", "--kubeconfig", str(cluster.kubeconfig)])
    assert code == 0


def rights_of(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig of the reconciler's own account."""
    return kubeconfig_of(cluster, "fleet-reconciler", folder)


def kubeconfig_of(
    cluster: Cluster, account: str, folder: Path, context: str = "test", *, pod: str = ""
) -> Path:
    """A kubeconfig of a ServiceAccount in our namespace; of one of its pods, with its node."""
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", pod) if pod else ()
    token = cluster.kubectl("create", "token", account, "-n", NAMESPACE, *bound).strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["current-context"] = context
    config["contexts"] = [{"name": context, "context": {"cluster": "test", "user": account}}]
    path = folder / f"{account}.kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path
