"""Empty a cluster between two tests.

By plain requests: kubectl takes a process each, and our own client is what the tests are about.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import ssl
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Set
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
_OURS = tuple(f"/apis/{_GROUP}/v1alpha1/{plural}" for plural in _KINDS)
_OTHERS = (  # kinds of other projects that tests install
    "/apis/keda.sh/v1alpha1/scaledobjects",
    "/apis/gateway.networking.k8s.io/v1/httproutes",
    "/apis/inference.networking.k8s.io/v1/inferencepools",
)
_DEFINED = {path: f"{path.split('/')[-1]}.{path.split('/')[2]}" for path in (*_OURS, *_OTHERS)}
_NAMESPACED = (
    *_DEFINED,
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
WIPED = _CLUSTER_WIDE + _NAMESPACED  # where each kind that goes is listed
_AGAIN = (404, 409, 422, 429)
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


# Where etcd keeps kinds under another name than their plural, or with the name of their group.
_KEYS = {
    _CRDS: "apiextensions.k8s.io/customresourcedefinitions",
    "/api/v1/services": "services/specs",
    "/api/v1/endpoints": "services/endpoints",
    **{path: f"{path.split('/')[2]}/{path.split('/')[-1]}" for path in _DEFINED},
}
_REGISTRY = "/registry/"
_PREFIXES = {  # by where a kind is listed
    path: f"{_REGISTRY}{_KEYS.get(path, path.rpartition('/')[2])}/" for path in WIPED
}
_NAMESPACE_KEYS, _NODE_KEYS = f"{_REGISTRY}namespaces/", f"{_REGISTRY}minions/"
_PASSING = ("/registry/events/", *_PREFIXES.values())  # what needs no look before a namespace stays

Identity = tuple[str, int | None]  # an object's uid, and its generation where it has one


@dataclass(slots=True)
class Wiper:
    """Takes away what tests made in one cluster, but `kept`: path -> what is there.

    The keys in etcd say which kinds are worth a list: those that were written since nothing was
    left. Lists of all of them, until all is gone, cost half a second of processor time a test; so
    did a namespace's end, for which each kind is asked about again.
    """

    etcd_port: int
    port: int
    ca: Path
    token: str
    kept: Mapping[str, Identity] = field(default_factory=dict)
    _empty: Mapping[str, int] = field(default_factory=dict)  # keys while nothing was left
    _connection: http.client.HTTPSConnection | None = None

    def keep(self) -> None:
        """What is there now stays for the tests that follow."""
        self.kept = self.made()
        self._empty = self._keys()

    def made(self) -> dict[str, Identity]:
        """All that tests made and is there, by its path; what is kept, too."""
        with self._connected():
            return self._made()

    def wipe(self, namespaces: Set[str], *, wholly: bool = False) -> None:
        """Nothing is left of what a test made, whatever finalizers it has, but emptied namespaces:
        `namespaces`, whose names no other test takes for its own, and SYSTEM, as one that is
        deleted stays for 5 s more, unless a test deleted it. Nor is what is kept, if a test
        changed it, or it is to go `wholly`."""
        with self._connected():
            if wholly:
                self._forget()
            before = self._empty
            self._wipe(namespaces)
            if self.kept and self._is_written_since(before) and self._made() != self.kept:
                self._forget()
                self._wipe(namespaces)

    def _forget(self) -> None:
        self.kept, self._empty = {}, {}

    def _is_written_since(self, before: Mapping[str, int]) -> bool:
        """Whether anything of the kinds of what is kept is another now, or gone."""
        kinds = {kind_of(path) for path in self.kept}
        keys = tuple(_PREFIXES[kind] for kind in kinds)
        return any(self._empty.get(k) != v for k, v in before.items() if k.startswith(keys))

    def _made(self) -> dict[str, Identity]:
        found = (each for path in _PREFIXES for each in self._found(path))
        return {path: _identity(item) for path, item in found if _is_made(path, item)}

    def _wipe(self, namespaces: Set[str]) -> None:
        always = {*_OWN_NAMESPACES, SYSTEM}

        def is_empty() -> bool:
            keys = self._keys()
            written = [key for key, version in keys.items() if self._empty.get(key) != version]
            self._end_namespaces(keys, always | namespaces)
            left = [
                (path, item)
                for kind in _kinds_of(written)
                for path, item in self._found(kind)
                if _is_made(path, item) and self.kept.get(path) != _identity(item)
            ]
            for path, item in left:
                self._end(path, item)
            if left or self._is_system_going() or self._is_gone_kind_served():
                return False
            self._end_namespaces(keys, always | (namespaces - _with_more(written)))
            for key in keys:
                if key.startswith(_NODE_KEYS):  # last: kwok ends pods only while theirs is there
                    self._call("DELETE", f"{_NODES}/{key.removeprefix(_NODE_KEYS)}")
            self._empty = keys
            return True

        wait_for(is_empty, "what a test made is gone")

    def _end_namespaces(self, keys: Iterable[str], stay: Set[str]) -> None:
        for key in keys:
            name = key.removeprefix(_NAMESPACE_KEYS)
            if name != key and name not in stay:
                self._call("DELETE", f"{_NAMESPACES}/{name}")

    def _is_system_going(self) -> bool:
        """Nothing can be made in it then."""
        found = self._call("GET", f"{_NAMESPACES}/{SYSTEM}")
        return "deletionTimestamp" in found.get("metadata", {})

    def _is_gone_kind_served(self) -> bool:
        """A definition that is gone is served for a moment more."""
        gone = (path for path, name in _DEFINED.items() if f"{_CRDS}/{name}" not in self.kept)
        return any(self._call("GET", path) for path in gone)

    def _keys(self) -> dict[str, int]:
        """Each key in etcd, with the revision that wrote it."""
        ends = {"key": _REGISTRY, "range_end": f"{_REGISTRY[:-1]}0"}  # "0" comes after "/"
        wish = {name: base64.b64encode(end.encode()).decode() for name, end in ends.items()}
        asked = json.dumps(wish | {"keys_only": True}).encode()
        url = f"http://127.0.0.1:{self.etcd_port}/v3/kv/range"
        with urllib.request.urlopen(url, asked, timeout=PATIENCE_S) as answer:
            found = json.load(answer).get("kvs", ())
        return {base64.b64decode(kv["key"]).decode(): int(kv["mod_revision"]) for kv in found}

    def _found(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What is there, each with its own path."""
        for item in self._call("GET", path, accept=_METADATA).get("items") or ():
            namespace, name = item["metadata"].get("namespace"), item["metadata"]["name"]
            prefix, _, plural = path.rpartition("/")
            within = f"namespaces/{namespace}/" if namespace else ""
            yield f"{prefix}/{within}{plural}/{name}", item

    def _end(self, path: str, item: Mapping[str, Any]) -> None:
        is_going = "deletionTimestamp" in item["metadata"]
        if not (is_going and item["metadata"].get("finalizers")):
            # also of a pod that goes: where its node is gone, it would be waited for a minute
            options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            self._call("DELETE", path, options)
        elif not path.startswith(_CRDS):
            self._call("PATCH", path, {"metadata": {"finalizers": None}})

    def _call(
        self, method: str, path: str, body: object = None, accept: str = "application/json"
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        if method != "GET":
            headers["Content-Type"] = "application/json"
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        assert self._connection is not None
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        with self._connection.getresponse() as answer:
            text = answer.read()
        # what is gone already, is being changed, or is of a kind that goes, is looked at again
        assert answer.status < 300 or answer.status in _AGAIN, f"{method} {path}: {text!r}"
        return json.loads(text) if answer.status < 300 else {}

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Between two tests: it would not outlive an API server that one of them stops."""
        trust = ssl.create_default_context(cafile=self.ca)
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_S, context=trust)
        ) as self._connection:
            yield


def kind_of(path: str) -> str:
    """Where all objects of a kind are listed, by the path of one of them."""
    return re.sub(r"/namespaces/[^/]+(?=/)", "", path).rpartition("/")[0]


def _kinds_of(keys: Iterable[str]) -> list[str]:
    """Those of some keys; with a definition its objects, although there are none: one whose
    objects nobody ever asked for takes a server up to two minutes to end."""
    found = [k for k, prefix in _PREFIXES.items() if any(key.startswith(prefix) for key in keys)]
    objects = [kind for kind in _DEFINED if _CRDS in found and kind not in found]
    return [*found, *objects]


def _with_more(keys: Iterable[str]) -> set[str]:
    """Namespaces in which there is more than what is emptied here; of cluster-wide kinds, names
    that no namespace has."""
    return {key.split("/")[-2] for key in keys if not key.startswith(_PASSING)}


def _identity(item: Mapping[str, Any]) -> Identity:
    metadata = item["metadata"]
    return metadata["uid"], metadata.get("generation")


def _is_made(path: str, item: Mapping[str, Any]) -> bool:
    """By a test, and not by the cluster itself."""
    metadata = item["metadata"]
    if path.startswith(_CRDS):
        name: str = metadata["name"]
        return name.endswith(f".{_GROUP}") or name in _DEFINED.values()
    if path.startswith(_ADMISSION):
        return True
    if "namespace" not in metadata and not path.startswith(f"/apis/{_GROUP}"):
        return metadata.get("labels", {}).get("app.kubernetes.io/managed-by") in _MANAGERS
    namespace = metadata.get("namespace", "")
    return not namespace.startswith("kube-") and metadata["name"] not in _OWN_NAMES
