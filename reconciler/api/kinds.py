"""The kinds of the fleet repository, one file each. Adding a kind is one file and one row. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.api.meta import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` prints of an object; `wide` with -o wide only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """What others must know of a kind beside its fields.

    `runs`: there are processes or pods of it, as many as its `spec.replicas`; every other kind only
    says how. `is_policy`: it is in force for others, so that the last valid one stays in force
    where a new one is wrong. `has_status`: in a cluster we write one.
    """

    name: str
    resource: type[Resource]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    runs: bool = False
    is_policy: bool = False
    has_status: bool = False

    @property
    def namespaced(self) -> bool:
        return self.resource.namespaced


_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_REASON = Column("Reason", '.status.conditions[?(@.type=="Ready")].reason')
_REVISION = Column("Revision", ".status.observedRevision", wide=True)
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_ROWS = (
    # There is no status of a Model, and none of a pool of cluster nodes: it has the
    # labels to ask for these with (decision 0023).
    Kind(
        "Fleet",
        FleetPolicy,
        plural="fleets",
        short_name="fl",
        columns=(
            _READY,
            _REASON,
            Column("Applied", ".status.appliedRevision", wide=True),
            Column("Head", ".status.head", wide=True),
            Column("Source", ".status.source.location", wide=True),
            Column("Drift", ".spec.drift", wide=True),
            _AGE,
            Column("Message", '.status.conditions[?(@.type=="Ready")].message'),
        ),
        is_policy=True,
        has_status=True,
    ),
    Kind(
        "FleetNode",
        FleetNode,
        plural="fleetnodes",
        short_name="fn",
        columns=(
            _READY,
            _REASON,
            Column("Host", ".spec.agent.hostIP"),
            Column("Cluster", ".spec.kubernetes.cluster"),
            Column("Nodes", ".spec.kubernetes.nodeSelector"),
            Column("Memory", ".spec.hardware.memory", wide=True),
            Column("Agent", ".status.observed.agentVersion", wide=True),
            _REVISION,
            _AGE,
        ),
        is_policy=True,
        has_status=True,
    ),
    Kind(
        "Model",
        Model,
        plural="models",
        short_name="mdl",
        columns=(
            Column("Source", ".spec.source"),
            Column("Format", ".spec.format", wide=True),
            _AGE,
        ),
    ),
    Kind(
        "InferenceService",
        InferenceService,
        plural="inferenceservices",
        short_name="isvc",
        columns=(
            _READY,
            _REASON,
            # kubectl shows the first of several: most services have one.
            Column("Node", ".status.placements[*].node"),
            Column("Runtime", ".spec.runtime", wide=True),
            Column("Model", ".spec.modelRef", wide=True),
            Column("Endpoint", ".status.endpoint"),
            # Of one home: kubectl shows the first of several.
            Column("Tokens/s", ".status.instances[*].tokensPerSecond", "number", wide=True),
            _REVISION,
            _AGE,
        ),
        runs=True,
        has_status=True,
    ),
)
KIND_TABLE: Mapping[str, Kind] = MappingProxyType({row.name: row for row in _ROWS})
KINDS: Mapping[str, type[Resource]] = MappingProxyType({row.name: row.resource for row in _ROWS})


def schema_file(kind: str) -> str:
    """The file in schemas/ of a kind: `model.json`. fleet.json stands for all kinds together, so
    kind Fleet has the name of its class."""
    return f"{KINDS[kind].__name__.lower()}.json"
