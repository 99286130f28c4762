"""Kinds besides those that we own: read, or written by an installation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.kube.objects import OWNED_KINDS, OwnedKind

LEASE = OwnedKind("coordination.k8s.io", "v1", "Lease", "leases", 0)

_ROWS = (
    LEASE,
    OwnedKind("", "v1", "Event", "events", 0),
    OwnedKind("", "v1", "Node", "nodes", 0, namespaced=False),
    OwnedKind("", "v1", "Pod", "pods", 0),
    OwnedKind("", "v1", "Secret", "secrets", 0),
    OwnedKind("", "v1", "ServiceAccount", "serviceaccounts", 0),
    OwnedKind("", "v1", "ResourceQuota", "resourcequotas", 0),
    OwnedKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy",
              "validatingadmissionpolicies", 0, namespaced=False),
    OwnedKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding",
              "validatingadmissionpolicybindings", 0, namespaced=False),
    OwnedKind("apps", "v1", "ReplicaSet", "replicasets", 0),
    OwnedKind("events.k8s.io", "v1", "Event", "events", 0),
    OwnedKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", 0),
    OwnedKind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", 0,
              namespaced=False),
    OwnedKind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", 0,
              namespaced=False),
    OwnedKind("rbac.authorization.k8s.io", "v1", "Role", "roles", 0),
    OwnedKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", 0),
    OwnedKind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", 0, namespaced=False),
    OwnedKind("storage.k8s.io", "v1", "StorageClass", "storageclasses", 0, namespaced=False),
)  # fmt: skip
SERVED_KINDS: Mapping[tuple[str, str], OwnedKind] = MappingProxyType(
    {(row.group, row.kind): row for row in _ROWS} | dict(OWNED_KINDS)
)
"""(group, kind) -> its API path, for every kind that the client can request."""
