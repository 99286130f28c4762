"""Objects of a cluster as plain JSON, their identity, and the kinds that we write. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.api.kinds import KIND_TABLE
from reconciler.api.meta import GROUP, VERSION, ObjectRef

Manifest = Mapping[str, Any]

MANAGER = "fleet-reconciler"  # the field manager of everything that the reconciler applies
AGENT_MANAGER = "fleet-agent"  # of what an agent writes: its Lease, its slices, its status
SPEED_MANAGER = "fleet-reconciler-speed"  # of how fast pods write: entries of status.instances
SYSTEM_NAMESPACE = "fleet-reconciler"  # where the reconciler, its Lease and its inventory live

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
FLEET_LABEL = f"{GROUP}/fleet"
SERVICE_LABEL = f"{GROUP}/inference-service"  # the name of the service that an object is for
PART_OF_LABEL = "applyset.kubernetes.io/part-of"

INPUTS_DIGEST_ANNOTATION = f"{GROUP}/inputs-digest"  # on pod templates and on their Deployment
INPUTS_ANNOTATION = f"{GROUP}/inputs"  # Workload.inputs as JSON, on the Deployment
NEEDS_ANNOTATION = f"{GROUP}/needs"  # memory that a pod was sized for, as JSON, on the Deployment
RENDER_DIGEST_ANNOTATION = f"{GROUP}/render-digest"  # of the pod template, on the Deployment


class ObjectId(NamedTuple):
    """Identity of one object in a cluster. `namespace` is empty if the kind has none.

    The version comes from our table, so that two names of one object compare equal.
    """

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def label(self) -> str:
        """`Deployment default/chat`, as plans and problems say it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else str(self)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """One kind of object that we write.

    `stage` orders writes: lower ones first, removals in reverse; a stage never waits for readiness.
    `guarded`: removing such an object loses data, so it needs confirmation. `project`: who makes
    the kind, where a cluster need not have it: without it a service goes without the object.
    """

    group: str
    version: str
    kind: str
    plural: str
    stage: int
    namespaced: bool = True
    guarded: bool = False
    project: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """The API path of one object, of those of a namespace, or of all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


_ROWS = (
    OwnedKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
              0, namespaced=False, guarded=True),
    OwnedKind("", "v1", "Namespace", "namespaces", 0, namespaced=False, guarded=True),
    *(OwnedKind(GROUP, VERSION, kind.name, kind.plural, 2 if kind.runs else 1, kind.namespaced)
      for kind in KIND_TABLE.values()),
    OwnedKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", 2, guarded=True),
    OwnedKind("", "v1", "ConfigMap", "configmaps", 2),
    OwnedKind("", "v1", "Service", "services", 2),
    OwnedKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", 3),
    OwnedKind("batch", "v1", "Job", "jobs", 3),
    OwnedKind("apps", "v1", "Deployment", "deployments", 3),
    OwnedKind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", 4),
    OwnedKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", 4),
    OwnedKind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", 4, project="KEDA"),
    OwnedKind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools", 4,
              project="the Inference Extension of the Gateway API"),
    OwnedKind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", 5,
              project="the Gateway API"),
)  # fmt: skip
OWNED_KINDS: Mapping[tuple[str, str], OwnedKind] = MappingProxyType(
    {(row.group, row.kind): row for row in _ROWS}
)
"""(group, kind) -> its row: every kind of object that a fleet may have in a cluster."""
AUTOSCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})


def id_of(manifest: Manifest) -> ObjectId:
    """The identity of a manifest or of a live object."""
    metadata = manifest["metadata"]
    group = manifest["apiVersion"].rpartition("/")[0]
    return ObjectId(group, manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def kind_of(oid: ObjectId) -> OwnedKind:
    """The row of an object's kind. KeyError: not a kind that we write."""
    return OWNED_KINDS[oid.group, oid.kind]


def finalizers_of(live: Manifest) -> str:
    """What an object waits for that is being deleted, in words; empty: for no one."""
    return ", ".join(live["metadata"].get("finalizers") or ())


def service_of(manifest: Manifest) -> ObjectRef | None:
    """The InferenceService that an object is for, or None."""
    metadata = manifest["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    return ObjectRef("InferenceService", metadata.get("namespace", ""), name) if name else None


def ref_of(oid: ObjectId) -> ObjectRef:
    """The ref of a fleet document with this identity."""
    return ObjectRef(oid.kind, oid.namespace, oid.name)


def document_id(ref: ObjectRef) -> ObjectId:
    """The identity of the fleet document with this ref."""
    return ObjectId(GROUP, ref.kind, ref.namespace, ref.name)
