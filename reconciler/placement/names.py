"""What the objects of a service are called in a cluster. Pure.

A Service's name is a DNS label of RFC 1035, and the service's own name is the value of a label on
each of its objects: both have 63 characters.
"""

from __future__ import annotations

import hashlib
import re

from reconciler.api.meta import ObjectRef

MOST = 63
_MARK = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
# Of Kubernetes itself and of ours: pods there could be given the Secrets of those.
RESERVED_NAMESPACES = frozenset(
    {"fleet-reconciler", "kube-node-lease", "kube-public", "kube-system"}
)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def object_name(ref: ObjectRef) -> str:
    """The name of the Deployment and the Service: dots become dashes."""
    return ref.name.replace(".", "-")


def with_suffix(name: str, suffix: str) -> str:
    """`name-suffix` within the length of a label; what is cut off is in a hash."""
    room = MOST - len(suffix) - 1
    if len(name) > room:
        mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK]
        name = f"{name[: room - _MARK - 1].rstrip('-')}-{mark}"
    return f"{name}-{suffix}"


def unusable_name(ref: ObjectRef) -> tuple[str, str] | None:
    """(field, message) of why a service cannot have objects under its name; None where it can."""
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
    if namespace in RESERVED_NAMESPACES:
        return (
            "metadata.namespace",
            f"{namespace} is a namespace of the cluster itself, whose Secrets are in it; choose"
            " another one",
        )
    return None
