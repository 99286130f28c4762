"""Writes an installation into a cluster and removes it again; never touches objects that are not
ours."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from reconciler.kube.adoption.controllers import applier_of
from reconciler.kube.client.errors import ClusterError, NotFound
from reconciler.kube.install import admission
from reconciler.kube.install.rbac import agent_account, agent_manifests
from reconciler.kube.objects import (
    AGENT_MANAGER,
    MANAGED_BY_LABEL,
    MANAGER,
    SYSTEM_NAMESPACE,
    Manifest,
    ObjectId,
    id_of,
)

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

_SETTLE_S = 30.0  # for a definition to be served, or a token to be created
_GONE_S = 60.0
_LOOK_S = 0.2
_POLICIES = "/apis/admissionregistration.k8s.io/v1"


class InstallResult(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept as it is"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Foreign:
    """An object with a name that we need and that is not ours: `owner` is its owner."""

    oid: ObjectId
    owner: str

    def __str__(self) -> str:
        return f"{self.oid.label} is there already and not ours ({self.owner})"


def knows_admission(api: ApiServer) -> bool:
    """Whether the server has ValidatingAdmissionPolicy (Kubernetes 1.30 and later)."""
    answer = api.raw("GET", _POLICIES)
    resources = answer.get("resources", ()) if isinstance(answer, dict) else ()
    return any(row.get("name") == "validatingadmissionpolicies" for row in resources)


def foreign(api: ApiServer, manifests: Iterable[Manifest]) -> tuple[Foreign, ...]:
    """Objects in the way. A namespace may belong to anyone."""
    strangers = []
    for manifest in manifests:
        live = api.get(id_of(manifest))
        if live is not None and not is_ours(live) and live["kind"] != "Namespace":
            strangers.append(Foreign(id_of(live), owner_of(live)))
    return tuple(strangers)


def is_ours(live: Manifest) -> bool:
    """The reconciler's, or an agent's own."""
    return (live["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) in (MANAGER, AGENT_MANAGER)


def owner_of(live: Manifest) -> str:
    """The owner according to the object, for messages."""
    metadata = live["metadata"]
    notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    if release := notes.get("meta.helm.sh/release-name"):
        return f"Helm release {release}"
    if applier := applier_of(live):
        return applier
    managers = [row.get("manager", "") for row in metadata.get("managedFields") or ()]
    by = labels.get(MANAGED_BY_LABEL) or ", ".join(dict.fromkeys(filter(None, managers)))
    return f"by {by}" if by else "nothing says whose"


def wait_until_gone(api: ApiServer, manifests: Iterable[Manifest]) -> None:
    """Wait for objects that are being deleted, such as our namespace after an uninstallation.
    ClusterError if they remain, because something in them is not deleted."""
    for manifest in manifests:
        oid = id_of(manifest)
        if not _wait(partial(_is_settled, api, oid), _GONE_S):
            raise ClusterError(
                f"cluster {api.name}: {oid.label} is being deleted and still there after"
                f" {_GONE_S:g} s; see what its status and its finalizers wait for"
            )


def _is_settled(api: ApiServer, oid: ObjectId) -> bool:
    live = api.get(oid)
    return live is None or not live["metadata"].get("deletionTimestamp")


def write(
    api: ApiServer, manifests: Iterable[Manifest]
) -> Iterator[tuple[ObjectId, InstallResult]]:
    """Apply each in turn, and yield the result. Call `foreign` first."""
    for manifest in manifests:
        oid = id_of(manifest)
        before = api.get(oid)
        if before is not None and not is_ours(before):
            yield oid, InstallResult.KEPT
            continue
        # Forced: it is ours, and manual changes belong in the fleet or the command line.
        after = api.apply(manifest, force=True)
        if before is None:
            yield oid, InstallResult.CREATED
        elif _without_status(before) == _without_status(after):
            yield oid, InstallResult.UNCHANGED
        else:
            yield oid, InstallResult.CHANGED


def wait_until_served(api: ApiServer, names: Iterable[str]) -> None:
    """Wait until objects of these definitions can be written. Raises ClusterError."""
    for name in names:
        oid = ObjectId("apiextensions.k8s.io", "CustomResourceDefinition", "", name)
        if not _wait(partial(_is_served, api, oid)):
            raise ClusterError(
                f"cluster {api.name}: {oid} is not served after {_SETTLE_S:g} s; see"
                f" `kubectl describe crd {name}`"
            )


def delete(api: ApiServer, oids: Iterable[ObjectId]) -> Iterator[tuple[ObjectId, InstallResult]]:
    """Delete those that exist and are ours, in that order."""
    for oid in oids:
        live = api.get(oid)
        if live is None or live["metadata"].get("deletionTimestamp"):
            continue
        if not is_ours(live):
            yield oid, InstallResult.KEPT
            continue
        api.delete(oid, uid=live["metadata"]["uid"])
        yield oid, InstallResult.DELETED


def agent_kubeconfig(api: ApiServer, node: str, server: str | None) -> dict[str, Any]:
    """The kubeconfig of a node's agent, whose objects `write` has created. Raises ClusterError."""
    name = agent_account(node)
    oid = ObjectId("", "Secret", SYSTEM_NAMESPACE, name)
    if not _wait(lambda: bool((api.get(oid) or {}).get("data", {}).get("token"))):
        raise ClusterError(
            f"cluster {api.name}: no token appeared in {oid.label} within {_SETTLE_S:g} s: does the"
            " cluster's controller manager run?"
        )
    data = (api.get(oid) or {})["data"]
    grant = api.grant()
    at: dict[str, Any] = {"server": server or grant.server}
    # The CA that the cluster gives to its pods, unless another one is set.
    ca = base64.b64encode(grant.ca.encode()).decode() if grant.ca else data.get("ca.crt")
    at |= {"certificate-authority-data": ca} if ca else {}
    at |= {"tls-server-name": grant.tls_server_name} if grant.tls_server_name else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": api.name, "cluster": at}],
        "users": [{"name": name, "user": {"token": base64.b64decode(data["token"]).decode()}}],
        "contexts": [
            {
                "name": api.name,
                "context": {"cluster": api.name, "user": name, "namespace": SYSTEM_NAMESPACE},
            }
        ],
        "current-context": api.name,
    }


def agents_of(api: ApiServer) -> tuple[str, ...]:
    """The nodes whose agents were given a kubeconfig."""
    from reconciler.kube.endpoints.slices import NODE_LABEL
    from reconciler.kube.kinds import SERVED_KINDS

    selector = f"{MANAGED_BY_LABEL}={MANAGER},{NODE_LABEL}"
    kind = SERVED_KINDS["", "ServiceAccount"]
    try:
        leases = api.list(kind, selector=selector, namespace=SYSTEM_NAMESPACE).items
    except NotFound:
        return ()
    return tuple(sorted(item["metadata"]["labels"][NODE_LABEL] for item in leases))


def agent_objects(nodes: Sequence[str]) -> tuple[ObjectId, ...]:
    made = (m for node in nodes for m in (*agent_manifests(node), *admission.of_node(node)))
    return tuple(map(id_of, made))


def _without_status(live: Manifest) -> dict[str, Any]:
    """An object without status and bookkeeping: a controller may write a status between two
    reads."""
    metadata = {k: v for k, v in live["metadata"].items() if k in ("uid", "labels", "annotations")}
    return {k: v for k, v in live.items() if k not in ("metadata", "status")} | metadata


def _is_served(api: ApiServer, oid: ObjectId) -> bool:
    conditions = ((api.get(oid) or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _wait(condition: Callable[[], bool], timeout_s: float = _SETTLE_S) -> bool:
    until = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return met
