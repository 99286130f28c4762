"""Empty a cluster between two tests.

By plain requests: kubectl takes a process each, and our own client is what the tests are about.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.wait import PATIENCE_S, wait_for

SYSTEM = "fleet-reconciler"
_GROUP = "inference.llmkube.dev"
_OWN_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_OWN_NAMES = frozenset({"kubernetes", "kube-root-ca.crt", "default"})
_MANAGERS = ("fleet-reconciler", "Helm")
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
_NODES = "/api/v1/nodes"
_CLUSTER_WIDE = (
    _CRDS,
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    f"{_ADMISSION}/validatingadmissionpolicies",
    f"{_ADMISSION}/validatingadmissionpolicybindings",
)
_KINDS = ("inferenceservices", "models", "fleetnodes", "fleets")
_NAMESPACED = (
    *(f"/apis/{_GROUP}/v1alpha1/{plural}" for plural in _KINDS),
    *(f"/apis/apps/v1/{p}" for p in ("deployments", "replicasets", "statefulsets", "daemonsets")),
    "/apis/batch/v1/jobs",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/discovery.k8s.io/v1/endpointslices",
    *(f"{_RBAC}/{plural}" for plural in ("roles", "rolebindings")),
    *(
        f"/api/v1/{plural}"
        for plural in (
            *("services", "endpoints", "pods", "configmaps", "persistentvolumeclaims"),
            *("secrets", "serviceaccounts", "resourcequotas"),
        )
    ),
)
_AGAIN = (404, 409, 422, 429)
_ACCEPT = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


Identity = tuple[str, int | None]  # an object's uid, and its generation where it has one


@dataclass(frozen=True, slots=True)
class Wiper:
    """Takes away what a test made in one cluster, but `kept`: path -> what is there."""

    port: int
    ca: Path
    token: str
    kept: Mapping[str, Identity] = field(default_factory=dict)
    _local: threading.local = field(default_factory=threading.local)
    _open: list[http.client.HTTPSConnection] = field(default_factory=list)

    def there(self) -> dict[str, Identity]:
        """All that a test made, as far as it is not bound to go."""
        try:
            found = (each for path in _CLUSTER_WIDE + _NAMESPACED for each in self._found(path))
            return {path: _identity(item) for path, item in found if _is_made(path, item)}
        finally:
            self._close()

    def wipe(self) -> None:
        """Nothing is left of what a test made, whatever finalizers it has, but emptied namespaces:
        SYSTEM stays, as one that is deleted stays for 5 s more, unless a test deleted it; others
        go by themselves, and their names do not come again."""
        try:
            self._wipe()
        finally:
            self._close()

    def _close(self) -> None:
        for connection in self._open:
            connection.close()

    def _wipe(self) -> None:
        for path, item in self._found(_NAMESPACES):
            if item["metadata"]["name"] not in _OWN_NAMESPACES | {SYSTEM}:
                self._end(path, item)
        with ThreadPoolExecutor(8, "wipe") as pool:

            def is_empty() -> bool:
                found = pool.map(lambda path: [*self._found(path)], _CLUSTER_WIDE + _NAMESPACED)
                left = [
                    (path, item)
                    for each in found
                    for path, item in each
                    if _is_made(path, item) and self.kept.get(path) != _identity(item)
                ]
                list(pool.map(lambda one: self._end(*one), left))
                return not (left or self._is_system_going() or self._is_gone_kind_served())

            wait_for(is_empty, "what a test made is gone")
        for path, item in self._found(_NODES):  # last: kwok ends pods only while theirs is there
            self._end(path, item)

    def _is_system_going(self) -> bool:
        """Nothing can be made in it then."""
        named = {item["metadata"]["name"]: item["metadata"] for _, item in self._found(_NAMESPACES)}
        return "deletionTimestamp" in named.get(SYSTEM, {})

    def _is_gone_kind_served(self) -> bool:
        """A definition that is gone is served for a moment more."""
        gone = (plural for plural in _KINDS if f"{_CRDS}/{plural}.{_GROUP}" not in self.kept)
        return any(self._call("GET", f"/apis/{_GROUP}/v1alpha1/{plural}") for plural in gone)

    def _found(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What is there, each with its own path."""
        for item in self._call("GET", path).get("items") or ():
            namespace, name = item["metadata"].get("namespace"), item["metadata"]["name"]
            prefix, _, plural = path.rpartition("/")
            within = f"namespaces/{namespace}/" if namespace else ""
            yield f"{prefix}/{within}{plural}/{name}", item

    def _end(self, path: str, item: Mapping[str, Any]) -> None:
        if "deletionTimestamp" not in item["metadata"]:
            options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            self._call("DELETE", path, options)
        elif item["metadata"].get("finalizers") and not path.startswith(_CRDS):
            self._call("PATCH", path, {"metadata": {"finalizers": None}})

    def _call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": _ACCEPT}
        if method != "GET":
            headers["Accept"] = "application/json"
            headers["Content-Type"] = "application/json"
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        connection = self._connection()
        connection.request(method, path, json.dumps(body) if body else None, headers)
        with connection.getresponse() as answer:
            text = answer.read()
        # what is gone already, is being changed, or is of a kind that goes, is looked at again
        assert answer.status < 300 or answer.status in _AGAIN, f"{method} {path}: {text!r}"
        return json.loads(text) if answer.status < 300 else {}

    def _connection(self) -> http.client.HTTPSConnection:
        """One for each thread."""
        found: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if found is None:
            context = ssl.create_default_context(cafile=self.ca)
            found = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=PATIENCE_S, context=context
            )
            self._local.connection = found
            self._open.append(found)
        return found


def _identity(item: Mapping[str, Any]) -> Identity:
    metadata = item["metadata"]
    return metadata["uid"], metadata.get("generation")


def _is_made(path: str, item: Mapping[str, Any]) -> bool:
    """By a test, and not by the cluster itself."""
    metadata = item["metadata"]
    if path.startswith(_CRDS):
        return bool(metadata["name"].endswith(f".{_GROUP}"))
    if path.startswith(_ADMISSION):
        return True
    if "namespace" not in metadata and not path.startswith(f"/apis/{_GROUP}"):
        return metadata.get("labels", {}).get("app.kubernetes.io/managed-by") in _MANAGERS
    namespace = metadata.get("namespace", "")
    return not namespace.startswith("kube-") and metadata["name"] not in _OWN_NAMES
