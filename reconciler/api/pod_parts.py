"""What an InferenceService says of its pods, in Kubernetes' own words. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from reconciler.api.field import POD, Purpose
from reconciler.api.meta import Name, Spec
from reconciler.api.traffic import STATED_SCALE, KubernetesPart, TrafficFields

# Left out of what a pod is made of where it is not stated: older digests stay as they are.
STATED_POD = Purpose(POD, pods_only=True, noted_unstated=False)

# The parts that are read here, beside being handed on, have the shape that is read.
_ANY = {"type": "object", "additionalProperties": True}
_AS_THERE = {"description": "As Kubernetes has it."}
_GROUP = {"type": "integer", "minimum": 1, **_AS_THERE}
_TERM = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matchExpressions": {"type": "array", "items": _ANY, **_AS_THERE},
        "matchFields": {"type": "array", "items": _ANY, **_AS_THERE},
    },
}
_REQUIRED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["nodeSelectorTerms"],
    "properties": {
        "nodeSelectorTerms": {"type": "array", "minItems": 1, "items": _TERM, **_AS_THERE}
    },
    **_AS_THERE,
}
_NODE_AFFINITY = {
    "type": "object",
    "additionalProperties": True,
    "properties": {"requiredDuringSchedulingIgnoredDuringExecution": _REQUIRED},
    **_AS_THERE,
}
Affinity = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": True,
            "properties": {"nodeAffinity": _NODE_AFFINITY},
        }
    ),
]
_YES = {"type": "boolean", "enum": [True], **_AS_THERE}
_PROFILE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type"],
    "properties": {
        "localhostProfile": {"type": "string", **_AS_THERE},
        "type": {
            "type": "string",
            "enum": ["Localhost", "RuntimeDefault", "Unconfined"],
            **_AS_THERE,
        },
    },
    **_AS_THERE,
}
_NAMES = {"type": "array", "items": {"type": "string"}, "maxItems": 64, **_AS_THERE}
_CAPABILITIES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"add": _NAMES, "drop": _NAMES},
    **_AS_THERE,
}
# What only some may ask is a rule's, which names the Fleet that says so.
ContainerSecurity = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": True,
            "properties": {
                "allowPrivilegeEscalation": {"type": "boolean", **_AS_THERE},
                "capabilities": _CAPABILITIES,
                "readOnlyRootFilesystem": {"type": "boolean", **_AS_THERE},
                "runAsGroup": _GROUP,
                "runAsNonRoot": _YES,
                "runAsUser": _GROUP,
                "seccompProfile": _PROFILE,
            },
        }
    ),
]
PodSecurity = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "fsGroup": _GROUP,
                "fsGroupChangePolicy": {
                    "type": "string",
                    "enum": ["Always", "OnRootMismatch"],
                    **_AS_THERE,
                },
                "runAsGroup": _GROUP,
                "runAsNonRoot": _YES,
                "runAsUser": _GROUP,
                "seccompProfile": _PROFILE,
                "supplementalGroups": {
                    "type": "array",
                    "items": _GROUP,
                    "maxItems": 32,
                    **_AS_THERE,
                },
            },
        }
    ),
]
ResourceClaim = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                name: {"type": "string", **_AS_THERE}
                for name in ("name", "resourceClaimName", "resourceClaimTemplateName")
            },
        }
    ),
]
PodVolume = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": True,
            "required": ["name"],
            "properties": {
                "name": {"type": "string", **_AS_THERE},
                "emptyDir": {**_ANY, **_AS_THERE},
            },
        }
    ),
]
VolumeMount = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": True,
            "required": ["name", "mountPath"],
            "properties": {
                "name": {"type": "string", **_AS_THERE},
                "mountPath": {"type": "string", **_AS_THERE},
            },
        }
    ),
]
_PODS = {"anyOf": [{"type": "integer"}, {"type": "string"}], **_AS_THERE}
DisruptionBudget = Annotated[
    KubernetesPart,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {"maxUnavailable": _PODS, "minAvailable": _PODS},
        }
    ),
]
VolumeKind = Literal[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
]
"""What a volume of a pod may be, where the Fleet says so. A node's own folders are not among them:
they are a pool's cache, or nothing."""
OWN_VOLUMES: Mapping[str, str] = MappingProxyType(
    {"models": "/models", "workload": "/workload", "files": "/workload"}
)
"""The volumes of every engine's pod that nothing may take the place of, and where the engine has
them. Those at /tmp and /dev/shm a service may have otherwise."""


class ProbeOverrides(Spec):
    startup: Annotated[
        KubernetesPart | None, Field(description="Fields of the engine's startupProbe.")
    ] = None
    liveness: Annotated[
        KubernetesPart | None, Field(description="Fields of the engine's livenessProbe.")
    ] = None
    readiness: Annotated[
        KubernetesPart | None,
        Field(
            description="Fields of the engine's readinessProbe. What it asks stays ours: a pod that"
            " drains is not ready, which the engine does not know."
        ),
    ] = None


class PodFields(TrafficFields):
    """The fields of a service that pods alone have."""

    node_selector: Annotated[
        dict[str, str],
        STATED_POD,
        Field(description="Labels of the cluster's nodes that its pods may run on."),
    ] = Field(default_factory=dict)
    tolerations: Annotated[
        tuple[KubernetesPart, ...],
        STATED_POD,
        Field(max_length=64, description="Taints of nodes that its pods tolerate."),
    ] = ()
    affinity: Annotated[
        Affinity,
        STATED_POD,
        Field(
            description="Affinity of its pods. What it requires of nodes holds beside what its"
            " devices and its FleetNode require."
        ),
    ] = Field(default_factory=dict)
    topology_spread_constraints: Annotated[
        tuple[KubernetesPart, ...],
        STATED_POD,
        Field(
            max_length=16,
            description="How its pods are spread. Unset: over nodes, where there are enough.",
        ),
    ] = ()
    runtime_class_name: Annotated[
        Name | None, STATED_POD, Field(description="RuntimeClass of its pods, such as nvidia.")
    ] = None
    priority_class_name: Annotated[
        Name | None,
        STATED_POD,
        Field(description="PriorityClass of its pods. Takes the place of the one of priority."),
    ] = None
    pod_labels: Annotated[
        dict[str, str],
        STATED_POD,
        Field(description="More labels of its pods. Those that its objects need stay."),
    ] = Field(default_factory=dict)
    pod_annotations: Annotated[
        dict[str, str], STATED_POD, Field(description="More annotations of its pods.")
    ] = Field(default_factory=dict)
    pod_security_context: Annotated[
        PodSecurity,
        STATED_POD,
        Field(
            description="Users and groups of its pods, such as the group that may open a device."
            " Unset: 65532 for all. What would give a pod more rights is not taken."
        ),
    ] = Field(default_factory=dict)
    security_context: Annotated[
        ContainerSecurity,
        STATED_POD,
        Field(
            description="The same for the engine alone, and the rights that the Fleet's podSecurity"
            " allows. Unset: no capability, and a root folder that cannot be written."
        ),
    ] = Field(default_factory=dict)
    resource_claims: Annotated[
        tuple[ResourceClaim, ...],
        STATED_POD,
        Field(
            max_length=16,
            description="Claims of devices (DRA) that the engine uses, in place of a number of"
            " them.",
        ),
    ] = ()
    extra_volumes: Annotated[
        tuple[PodVolume, ...],
        STATED_POD,
        Field(
            max_length=32,
            description="Volumes of its pods beside their own, of kinds that the Fleet's podVolumes"
            " allows.",
        ),
    ] = ()
    extra_volume_mounts: Annotated[
        tuple[VolumeMount, ...],
        STATED_POD,
        Field(max_length=64, description="Where the engine has them."),
    ] = ()
    command: Annotated[
        tuple[str, ...],
        STATED_POD,
        Field(
            max_length=16,
            description="The engine's program in the image, and what stands before its arguments."
            " Unset: the runtime's own name of it.",
        ),
    ] = ()
    probe_overrides: Annotated[
        ProbeOverrides,
        STATED_POD,
        Field(description="Fields of the probes of its pods that take the place of ours."),
    ] = ProbeOverrides.model_construct()
    pod_disruption_budget: Annotated[
        DisruptionBudget,
        STATED_SCALE,
        Field(
            description="How many of its pods an eviction leaves, such as that of a drained node:"
            " maxUnavailable or minAvailable, as Kubernetes has them."
        ),
    ] = Field(default_factory=dict)
