"""RBAC of the reconciler and of each node's agent: the least that they need. Pure.

The reconciler may write the kinds that a fleet consists of, in any namespace, and reads no Secret.
But the right to create Deployments includes mounting any Secret of the namespace: RBAC cannot
express "Deployments without Secrets", so protect the fleet's repository like the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.kube.endpoints.heartbeat import lease_name
from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.objects import (
    MANAGED_BY_LABEL,
    MANAGER,
    OWNED_KINDS,
    SYSTEM_NAMESPACE,
    Manifest,
    OwnedKind,
)

NAME = "fleet-reconciler"  # of the ServiceAccount, the roles and the Deployment
AGENT_ROLE = "fleet-agent"
LABELS: Mapping[str, str] = {MANAGED_BY_LABEL: MANAGER}

_READ = ("get", "list", "watch")
_WRITE = ("create", "patch", "update", "delete")
_RBAC = "rbac.authorization.k8s.io"
# Read-only: an installation creates them, and a namespace's labels tell what its pods may do.
_READ_ONLY = frozenset({"CustomResourceDefinition", "Namespace"})
_STATUS = ("get", "patch", "update")
_BESIDE = (  # (group, resources, verbs) besides the owned kinds
    ("", ("pods",), _READ),  # why one of them is not ready
    ("", ("nodes",), ("list",)),  # whether there is any that a pool selects
    ("events.k8s.io", ("events",), ("get", "create", "patch")),
)


def manifests() -> tuple[Manifest, ...]:
    """The reconciler's ServiceAccount, its roles and their bindings."""
    rules = [_rule(group, plurals, verbs) for group, plurals, verbs in _cluster_rules()]
    leases = _rule("coordination.k8s.io", ["leases"], (*_READ, *_WRITE))
    return (
        service_account(NAME),
        _role("ClusterRole", NAME, rules),
        _binding("ClusterRoleBinding", NAME, "ClusterRole", NAME, NAME),
        _role("Role", NAME, [leases], SYSTEM_NAMESPACE),
        _binding("RoleBinding", NAME, "Role", NAME, NAME, SYSTEM_NAMESPACE),
    )


def agent_account(node: str) -> str:
    """The ServiceAccount of one node's agent. Admission identifies the node by it."""
    return f"{AGENT_ROLE}-{node}"


def agents_role() -> Manifest:
    """What every node's agent may do: read the fleet's documents, and write endpoints. Which
    entries and slices is up to admission (reconciler.kube.install.admission), since RBAC cannot
    tell."""
    kinds = [OWNED_KINDS[GROUP, kind].plural for kind in KINDS]
    rules = [
        _rule(GROUP, kinds, _READ),
        _rule(GROUP, ["inferenceservices/status"], ("get", "patch")),
        _rule("discovery.k8s.io", ["endpointslices"], (*_READ, *_WRITE)),
        _rule("", ["services"], _READ),
        # The agent drops a service only while it knows the uids of its namespace and definition.
        _rule("", ["namespaces"], ("get",)),
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], ("get",)),
    ]
    return _role("ClusterRole", AGENT_ROLE, rules)


def agent_manifests(node: str) -> tuple[Manifest, ...]:
    """One node's agent: its account and its own objects, by name. Its Lease is created here, empty:
    RBAC cannot restrict `create` to a name."""
    name = agent_account(node)
    labels = {**LABELS, NODE_LABEL: node}
    own = _rule(GROUP, ["fleetnodes/status"], ("get", "patch"), [node])
    lease = _rule("coordination.k8s.io", ["leases"], ("get", "patch", "update"), [lease_name(node)])
    made = (
        service_account(name),
        _role("ClusterRole", name, [own]),
        _binding("ClusterRoleBinding", name, "ClusterRole", name, name),
        _binding("ClusterRoleBinding", f"{name}:shared", "ClusterRole", AGENT_ROLE, name),
        _role("Role", name, [lease], SYSTEM_NAMESPACE),
        _binding("RoleBinding", name, "Role", name, name, SYSTEM_NAMESPACE),
        _token(name),
    )
    marked = ({**m, "metadata": {**m["metadata"], "labels": labels}} for m in made)
    return (*marked, _lease(node))


def service_account(name: str) -> dict[str, Any]:
    return _object("v1", "ServiceAccount", name, SYSTEM_NAMESPACE)


def _cluster_rules() -> Iterable[tuple[str, list[str], Sequence[str]]]:
    """One rule for each group and set of verbs, from the kinds that a fleet owns."""
    grouped: dict[tuple[str, Sequence[str]], list[str]] = {}
    for row in OWNED_KINDS.values():
        grouped.setdefault((row.group, _verbs(row)), []).append(row.plural)
    for (group, verbs), plurals in grouped.items():
        yield group, plurals, verbs
    yield GROUP, [f"{OWNED_KINDS[GROUP, kind].plural}/status" for kind in KINDS], _STATUS
    for group, resources, verbs in _BESIDE:
        yield group, list(resources), verbs


def _verbs(row: OwnedKind) -> Sequence[str]:
    return _READ if row.kind in _READ_ONLY else (*_READ, *_WRITE)


def _rule(
    group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()
) -> dict[str, Any]:
    made = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return made | ({"resourceNames": list(names)} if names else {})


def _role(kind: str, name: str, rules: list[dict[str, Any]], namespace: str = "") -> dict[str, Any]:
    return _object(f"{_RBAC}/v1", kind, name, namespace) | {"rules": rules}


def _binding(
    kind: str, name: str, role_kind: str, role: str, account: str, namespace: str = ""
) -> dict[str, Any]:
    return _object(f"{_RBAC}/v1", kind, name, namespace) | {
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}],
    }


def _lease(node: str) -> dict[str, Any]:
    made = _object("coordination.k8s.io/v1", "Lease", lease_name(node), SYSTEM_NAMESPACE)
    made["metadata"]["labels"][NODE_LABEL] = node  # as its agent renews it
    return made


def _token(account: str) -> dict[str, Any]:
    """A token that is valid until the Secret is deleted: an agent keeps serving for months without
    an API server, and an expired token could not be renewed then."""
    made = _object("v1", "Secret", account, SYSTEM_NAMESPACE)
    made["metadata"]["annotations"] = {"kubernetes.io/service-account.name": account}
    return made | {"type": "kubernetes.io/service-account-token"}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**metadata, "labels": dict(LABELS)},
    }
