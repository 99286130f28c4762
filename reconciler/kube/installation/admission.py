"""What RBAC cannot say of an agent: that it writes about its own node alone. Pure.

A ValidatingAdmissionPolicy (Kubernetes 1.30 and later) which the API server evaluates by itself.
It looks at agents only, whose ServiceAccounts carry their node's name; everybody else passes.
"""

from __future__ import annotations

from typing import Any

from reconciler.api.meta import GROUP
from reconciler.kube.installation.rbac import AGENT_ROLE, LABELS
from reconciler.kube.objects import SYSTEM_NAMESPACE, Manifest
from reconciler.kube.publishing.slices import NODE_LABEL

NAME = "fleet-agent-writes-of-its-own-node"
ADMISSION = "admissionregistration.k8s.io"

_PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_ROLE}-"
_OTHERS = "?status.?instances.orValue([]).filter(i, i.node != variables.node)"
# Fields of a status that are the reconciler's: an agent leaves each as it is.
_SERVICE = ("conditions", "observedGeneration", "observedRevision", "endpoint", "advertisedModels",
            "placements", "replicas", "readyReplicas", "selector")  # fmt: skip
_NODE = ("conditions", "observedGeneration", "observedRevision", "desired")


def manifests() -> tuple[Manifest, ...]:
    """The policy, and its binding for the whole cluster."""
    return (
        _object("ValidatingAdmissionPolicy") | {"spec": _policy()},
        _object("ValidatingAdmissionPolicyBinding")
        | {"spec": {"policyName": NAME, "validationActions": ["Deny"]}},
    )


def _policy() -> dict[str, Any]:
    slices = {
        "apiGroups": ["discovery.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["endpointslices"],
    }
    statuses = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["inferenceservices/status", "fleetnodes/status"],
    }
    return {
        # An API server that cannot evaluate this must not let an agent write anything.
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [slices, statuses]},
        "matchConditions": [
            {
                "name": "is-an-agent",
                "expression": f'request.userInfo.username.startsWith("{_PREFIX}")',
            }
        ],
        "variables": [
            {
                "name": "node",
                "expression": f"request.userInfo.username.substring({len(_PREFIX)})",
            }
        ],
        "validations": [
            *_slice_rules(),
            {
                "expression": 'request.resource.resource != "inferenceservices" || '
                f"object.{_OTHERS} == oldObject.{_OTHERS}",
                "message": "an agent writes only its own node's entry of status.instances",
            },
            _left_alone("inferenceservices", _SERVICE),
            _left_alone("fleetnodes", _NODE),
        ],
    }


def _slice_rules() -> list[dict[str, Any]]:
    """Made for its node, and was its node's before."""
    words = f"an agent writes only slices with the label {NODE_LABEL} of its own node"
    of_node = (
        f'({{thing}} == null || {{thing}}.metadata.?labels["{NODE_LABEL}"].orValue("")'
        " == variables.node)"
    )
    return [
        {
            "expression": 'request.resource.resource != "endpointslices" || '
            + of_node.format(thing=thing),
            "message": words,
        }
        for thing in ("object", "oldObject")
    ]


def _left_alone(resource: str, fields: tuple[str, ...]) -> dict[str, Any]:
    same = " && ".join(
        f"object.?status.?{field}.orValue(null) == oldObject.?status.?{field}.orValue(null)"
        for field in fields
    )
    return {
        "expression": f'request.resource.resource != "{resource}" || ({same})',
        "message": f"of a status an agent writes only its node's part, not {', '.join(fields)}",
    }


def _object(kind: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{ADMISSION}/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": dict(LABELS)},
    }
