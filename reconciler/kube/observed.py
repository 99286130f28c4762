"""One cluster in one pass: what observing, planning, applying and reporting hand to each other.

An Observation and a Plan carry these in the place of a TargetState. A cluster that gave no answer
is a plain TargetState: there is nothing to plan from, to apply to or to report about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Location, TargetState
from reconciler.kube.contribution import Contribute, Contribution
from reconciler.kube.diff.planning import ObjectPlan
from reconciler.kube.informer.observer import Snapshot
from reconciler.kube.nearby import AgentsNearby
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.running.pod_reader import NO_PODS, PodsFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster(TargetState):
    """A cluster that answered. `pods` are those of services that are not ready, or leave;
    `contribute` is how each contributor of objects does, with what it observed."""

    snapshot: Snapshot = field(compare=False, repr=False)
    nearby: AgentsNearby = field(compare=False, repr=False)
    pods: PodsFound = field(default=NO_PODS, compare=False, repr=False)
    contribute: tuple[Contribute, ...] = field(default=(), compare=False, repr=False)

    @property
    def documents(self) -> ObjectSet:
        """The fleet's objects there, its own documents among them, however they were applied."""
        return self.nearby.documents


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster(ObservedCluster):
    """With what its objects need, and what applying that goes by. `live` is what the plan was made
    from, and `contribution` what its contributors want; `stood` is where each service and document
    is declared, for the plan that removes it; `defaults` are those of this process that decide
    there."""

    fleet: str
    objects: ObjectPlan = field(compare=False, repr=False)
    live: ObjectSet = field(compare=False, repr=False)
    contribution: Contribution = field(compare=False, repr=False)
    stood: Mapping[ObjectRef, Location] = field(compare=False, repr=False)
    defaults: Mapping[str, str] = field(compare=False, repr=False)

    @classmethod
    def of(
        cls,
        observed: ObservedCluster,
        *,
        fleet: str,
        objects: ObjectPlan,
        live: ObjectSet,
        contribution: Contribution,
        stood: Mapping[ObjectRef, Location],
        defaults: Mapping[str, str],
    ) -> PlannedCluster:
        known = {each.name: getattr(observed, each.name) for each in fields(observed)}
        return cls(
            **known,
            fleet=fleet,
            objects=objects,
            live=live,
            contribution=contribution,
            stood=stood,
            defaults=defaults,
        )
