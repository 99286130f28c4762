"""Clusters in one pass: what observing, planning, applying and reporting hand to each other.

The loop hands on an Observation and a Plan, and knows nothing of clusters. Those of a fleet with
clusters carry them beside their targets. A cluster that gave no answer is among the targets alone:
there is nothing to plan from, to apply to or to report about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Location, Observation, TargetState
from reconciler.core.plan import Plan
from reconciler.kube.adoption.adoptable import Adoptable
from reconciler.kube.contribution import Contribute, Contribution
from reconciler.kube.diff.planning import ObjectPlan
from reconciler.kube.informer.observer import Snapshot
from reconciler.kube.informer.strangers import Strangers
from reconciler.kube.nearby import AgentsNearby
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import ObjectId
from reconciler.kube.running.pod_reader import NO_PODS, PodsFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """A cluster that answered. `began`: when looking did, monotonic; `pods` are those of services
    that are not ready, or leave; `contribute` is how each contributor of objects does, with what it
    observed; `strangers` reads what others have there, of which `adoption` becomes ours.
    `left_out` are objects that the cluster has no kind for, each with its service."""

    began: float
    snapshot: Snapshot
    nearby: AgentsNearby
    pods: PodsFound = NO_PODS
    contribute: tuple[Contribute, ...] = ()
    strangers: Strangers
    adoption: Adoptable = field(default_factory=Adoptable)
    left_out: Mapping[ObjectId, ObjectRef] = field(default_factory=dict)

    @property
    def documents(self) -> ObjectSet:
        """The fleet's objects there, its own documents among them, however they were applied."""
        return self.nearby.documents


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """What the objects of a cluster need, and what applying that goes by. `live` is what the plan
    was made from, and `contribution` what its contributors want; `absent` are names under which
    nothing was found; `declared_at` tells where each service and document is declared, for the plan
    that removes it; `defaults` are those of this process that decide there."""

    observed: ObservedCluster
    fleet: str
    objects: ObjectPlan
    live: ObjectSet
    contribution: Contribution
    absent: frozenset[ObjectId]
    declared_at: Callable[[], Mapping[ObjectRef, Location]]
    defaults: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    """What looking at one target came to. `cluster` is None where it gave no answer."""

    state: TargetState
    instances: tuple[Instance, ...] = ()
    cluster: ObservedCluster | None = None


@dataclass(frozen=True, slots=True)
class FleetObservation(Observation):
    """An observation with the clusters that answered, by target."""

    clusters: Mapping[str, ObservedCluster] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FleetPlan(Plan):
    """A plan with the clusters that were planned, by target."""

    clusters: Mapping[str, PlannedCluster] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, plan: Plan, clusters: Mapping[str, PlannedCluster]) -> Self:
        """A plan of the services, joined with what the objects of each cluster need."""
        for target, cluster in clusters.items():
            objects = cluster.objects
            plan = plan.joined(objects.changes, objects.blocked, {target: objects.unchanged})
        return cls(
            **{each.name: getattr(plan, each.name) for each in fields(Plan)}, clusters=clusters
        )


def observed_clusters(observed: Observation) -> Mapping[str, ObservedCluster]:
    """The clusters that answered, by target."""
    return observed.clusters if isinstance(observed, FleetObservation) else {}


def planned_clusters(plan: Plan) -> Mapping[str, PlannedCluster]:
    """The clusters that were planned, by target."""
    return plan.clusters if isinstance(plan, FleetPlan) else {}
