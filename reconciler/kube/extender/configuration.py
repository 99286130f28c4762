"""The configuration by which a kube-scheduler finds the extender. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.vendors import GPU_RESOURCES
from reconciler.kube.objects import SYSTEM_NAMESPACE

NAME = "fleet-extender"  # of the Deployment, its Service and its ServiceAccount
PORT = 8888
TIMEOUT_S = 2
# A score of 10 then adds 1000: a point counts as much as all that one built-in plugin can say.
WEIGHT = 10


def configuration(url: str, *, kubeconfig: str | None = None) -> dict[str, Any]:
    """A KubeSchedulerConfiguration. Only pods that ask for a GPU come to us, and they go on without
    us where we do not answer: our own pod can be scheduled at any time."""
    extender: dict[str, Any] = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": WEIGHT,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": f"{TIMEOUT_S}s",
        "managedResources": [{"name": name} for name in sorted(GPU_RESOURCES)],
    }
    if url.startswith("https://"):
        # without a CA a scheduler trusts any certificate: that of the extender goes here
        extender |= {"enableHTTPS": True, "tlsConfig": {"caFile": CA_FILE}}
    connection = {"clientConnection": {"kubeconfig": kubeconfig}} if kubeconfig else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **connection,
        "extenders": [extender],
    }


CA_FILE = "/etc/kubernetes/fleet-extender-ca.crt"


def service_url(port: int, *, tls: bool) -> str:
    """Where a scheduler in the cluster's network finds it. One on the host's network knows no names
    of Services: give it an address."""
    scheme = "https" if tls else "http"
    return f"{scheme}://{NAME}.{SYSTEM_NAMESPACE}.svc:{port}"
