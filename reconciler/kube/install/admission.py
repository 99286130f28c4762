"""Rules for agents that RBAC cannot express: each may write about its own node only. Pure.

A ValidatingAdmissionPolicy (Kubernetes 1.30 and later), evaluated by the API server. It applies to
agents only, whose ServiceAccounts have their node's name. A second policy, one per node, reads the
node's FleetNode: endpoints under the name of a Service receive its clients, so an agent may write
those of its own services only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.meta import API_VERSION, GROUP
from reconciler.kube.endpoints.slices import NODE_LABEL, SLICE_SERVICE_LABEL
from reconciler.kube.install.rbac import AGENT_ROLE, LABELS, agent_account
from reconciler.kube.objects import SYSTEM_NAMESPACE, Manifest

NAME = "fleet-agent-writes-of-its-own-node"
ADMISSION = "admissionregistration.k8s.io"

_PREFIX = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_ROLE}-"
_SLICES = {
    "apiGroups": ["discovery.k8s.io"],
    "apiVersions": ["v1"],
    "resources": ["endpointslices"],
}
_SERVICE_OF = f'{{thing}}.metadata.?labels["{SLICE_SERVICE_LABEL}"].orValue("")'
_OTHERS = "?status.?instances.orValue([]).filter(i, i.node != variables.node)"
# Fields of a status that belong to the reconciler: an agent may not change them.
_SERVICE = ("conditions", "observedGeneration", "observedRevision", "endpoint", "advertisedModels",
            "placements", "replicas", "readyReplicas", "selector")  # fmt: skip
_NODE = ("conditions", "observedGeneration", "observedRevision", "desired")


def manifests() -> tuple[Manifest, ...]:
    """The policy, and its binding for the whole cluster."""
    return _bound(NAME, _policy(), {})


def of_node(node: str) -> tuple[Manifest, ...]:
    """The policy of one node's agent, and its binding. Without a FleetNode the agent may create
    nothing. It may change and delete what it created: endpoints can be withdrawn whatever is left
    of a fleet."""
    name = agent_account(node)
    param = {"name": node, "parameterNotFoundAction": "Deny"}
    return _bound(name, _of_node(name), {"paramRef": param}, {NODE_LABEL: node})


def _of_node(account: str) -> dict[str, Any]:
    service = _SERVICE_OF.format(thing="object")
    listed = "params.?status.?desired.?services.orValue([])"
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": API_VERSION, "kind": "FleetNode"},
        "matchConstraints": {"resourceRules": [_SLICES | {"operations": ["CREATE"]}]},
        "matchConditions": [
            {
                "name": "is-this-agent",
                "expression": "request.userInfo.username == "
                f'"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"',
            },
        ],
        "validations": [
            {
                "expression": f"{listed}.exists(s, s.namespace == object.metadata.namespace"
                f' && s.name.replace(".", "-") == {service})',
                "message": "an agent publishes only services that its FleetNode's status.desired"
                " lists",
            }
        ],
    }


def _bound(
    name: str, policy: dict[str, Any], more: dict[str, Any], labels: Mapping[str, str] = LABELS
) -> tuple[Manifest, ...]:
    binding = {"policyName": name, "validationActions": ["Deny"], **more}
    return (
        _object("ValidatingAdmissionPolicy", name, labels) | {"spec": policy},
        _object("ValidatingAdmissionPolicyBinding", name, labels) | {"spec": binding},
    )


def _policy() -> dict[str, Any]:
    slices = _SLICES | {"operations": ["CREATE", "UPDATE", "DELETE"]}
    statuses = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["inferenceservices/status", "fleetnodes/status"],
    }
    return {
        # If the API server cannot evaluate this, an agent may not write anything.
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
    """A slice for its node, that was its node's before, and of the same service."""
    message = f"an agent writes only slices with the label {NODE_LABEL} of its own node"
    of_node = (
        f'({{thing}} == null || {{thing}}.metadata.?labels["{NODE_LABEL}"].orValue("")'
        " == variables.node)"
    )
    is_other = 'request.resource.resource != "endpointslices" || '
    before, now = (_SERVICE_OF.format(thing=thing) for thing in ("oldObject", "object"))
    return [
        *(
            {"expression": is_other + of_node.format(thing=thing), "message": message}
            for thing in ("object", "oldObject")
        ),
        {
            "expression": f"{is_other}object == null || oldObject == null || {before} == {now}",
            "message": "a slice stays the one of its service",
        },
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


def _object(kind: str, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{ADMISSION}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {**LABELS, **labels}},
    }
