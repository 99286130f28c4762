"""The names of a service's objects in a cluster. Pure.

A Service's name is a DNS label of RFC 1035, and the service's own name is the value of a label on
each of its objects: both have at most 63 characters.
"""

from __future__ import annotations

import hashlib
import re

from reconciler.api.meta import ObjectRef

MOST = 63
_MARK = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# Namespaces of Kubernetes and our own: pods there could be given their Secrets.
RESERVED_NAMESPACES = frozenset(
    {"fleet-reconciler", "kube-node-lease", "kube-public", "kube-system"}
)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def object_name(ref: ObjectRef) -> str:
    """The name of the Deployment and the Service: dots become dashes."""
    return ref.name.replace(".", "-")


def with_suffix(name: str, suffix: str) -> str:
    """`name-suffix` within the length of a label; what is cut off is hashed."""
    room = MOST - len(suffix) - 1
    if len(name) > room:
        mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK]
        name = f"{name[: room - _MARK - 1].rstrip('-')}-{mark}"
    return f"{name}-{suffix}"


def unusable_name(ref: ObjectRef) -> tuple[str, str] | None:
    """(field, message) of why objects cannot have the service's name; None if they can."""
    name, namespace = object_name(ref), ref.namespace
    if len(name) > MOST or not _LABEL.fullmatch(name):
        return (
            "metadata.name",
            f"a Kubernetes Service's name begins with a letter and has at most {MOST} characters,"
            f" and {ref.name!r} has {len(name)}; choose such a name",
        )
    if len(namespace) > MOST or not _NAMESPACE.fullmatch(namespace):
        return (
            "metadata.namespace",
            f"a Kubernetes namespace has no dots and at most {MOST} characters: {namespace!r};"
            " choose such a one",
        )
    return reserved_namespace(ref)


def reserved_namespace(ref: ObjectRef) -> tuple[str, str] | None:
    """(field, message) of why a service may not be in its namespace; None if it may."""
    if ref.namespace not in RESERVED_NAMESPACES:
        return None
    return (
        "metadata.namespace",
        f"{ref.namespace} is a namespace of the cluster itself, whose Secrets and Services are in"
        " it; choose another one",
    )
