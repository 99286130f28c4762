"""What is known of a cluster's services after a pass: every status is made from it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance
from reconciler.core.plan import Action, Blocked, Change, Plan
from reconciler.fleet.workload import Workload
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.object_set import ObjectSet, generation_of
from reconciler.kube.objects import Manifest, ObjectId, document_id, id_of, ref_of
from reconciler.kube.running.acceptance import OF_OTHERS
from reconciler.loop.desired import Desired

T = TypeVar("T")
_OF_ONE_SERVICE = 8  # objects
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class ClusterView:
    """One cluster after a pass. `objects` are the live ones that are the fleet's, the fleet's own
    documents among them; `pods` those of services that are not ready; `leases` how each agent's
    heartbeat is, by node; `failed` why an object of a service was not applied,
    `left_out` why one is not there; `generations` the generation of each document that the revision
    was made from, where it was made from this cluster (None: from git, then what was looked at is
    the live one).
    """

    cluster: str
    desired: Desired
    plan: Plan
    instances: tuple[Instance, ...]
    objects: Mapping[ObjectId, Manifest]
    pods: Mapping[ObjectRef, tuple[Manifest, ...]] = field(default_factory=lambda: _NOTHING)
    leases: Mapping[str, LeaseState] = field(default_factory=lambda: _NOTHING)
    failed: Mapping[ObjectRef, str] = field(default_factory=lambda: _NOTHING)
    left_out: Mapping[ObjectRef, str] = field(default_factory=lambda: _NOTHING)
    generations: Mapping[ObjectRef, int] | None = None

    def workloads_of(self, ref: ObjectRef) -> tuple[Workload, ...]:
        """A service on each of its nodes, in order."""
        return self._workloads.get(ref, ())

    def instance(self, ref: ObjectRef, target: str) -> Instance | None:
        """What runs of a service there."""
        return self._instances.get((ref, target))

    def serves(self, ref: ObjectRef) -> int | None:
        """The generation of a service's document, while all that is to run of it here can be
        used."""
        instances = [
            self.instance(ref, w.target) for w in self.workloads_of(ref) if not w.suspended
        ]
        if not instances or not all(instance and instance.ready for instance in instances):
            return None
        return self._generation(ref)

    def document_state(self, ref: ObjectRef) -> object:
        """A value that is equal if, and only if, the live document is unchanged."""
        return self._packed.state(document_id(ref))

    def children(self, ref: ObjectRef, kind: str) -> tuple[Manifest, ...]:
        """The live objects of one kind that stand for a service."""
        children = (oid for oid in self._children.get(ref, ()) if oid.kind == kind)
        return tuple(map(self._manifest, children))

    def children_of_others(self, ref: ObjectRef) -> tuple[Manifest, ...]:
        """Those of kinds of other projects."""
        children = (oid for oid in self._children.get(ref, ()) if oid.kind in OF_OTHERS)
        return tuple(map(self._manifest, children))

    def grounds(self, ref: ObjectRef) -> tuple[object, ...] | None:
        """All that the status of a service is made from, but for the revision's name: while it is
        the same, so is what the status says.
        None: more than this cluster's objects and plan, as it does not run here alone."""
        workloads = self.workloads_of(ref)
        if not workloads or any(w.cluster != self.cluster for w in workloads):
            return None
        oid, objects = document_id(ref), self._packed
        return (
            workloads,
            self.generations and self.generations.get(ref),
            objects.states_of((oid, *self._children.get(ref, ()))),
            self.pods.get(ref),
            self.changes(ref),
            self.blocked(ref),
            self.overridden(ref),
            self.failed.get(ref),
            self.left_out.get(ref),
        )

    def blocked(self, ref: ObjectRef) -> Blocked | None:
        """Why a service stays as it runs."""
        return self._blocked.get(ref)

    def overridden(self, ref: ObjectRef) -> str | None:
        """Why a service is over its budget that was let through all the same."""
        return self._overridden.get(ref)

    def keeps(self, ref: ObjectRef) -> bool:
        """Whether a service stays as it runs although no workload says so: it is held, or absence
        from this revision proves nothing."""
        return bool(self.desired.fleet.incomplete) or ref in self._blocked or ref in self._held

    def changes(self, ref: ObjectRef) -> tuple[Change, ...]:
        """What the pass found to do for a service, on any target."""
        return self._changes.get(ref, ())

    def begins_or_ends(self, ref: ObjectRef, said: int | None) -> bool:
        """Whether it is news that a service can be used, or no longer, beside the generation that
        is said to be served. What is still to change is not served yet as it is declared."""
        serves = self.serves(ref)
        return serves != said and (serves is None or self.pending(ref) is None)

    def pending(self, ref: ObjectRef) -> Change | None:
        """A step that must still be made before the service is as its document declares. Drift of
        one of its objects does not count: its effect on the service is visible on the object."""
        for change in self.changes(ref):
            is_shown_only = change.is_shown_only or change.action is Action.DEFERRED
            beside = change.action is Action.DRIFT and is_child(change)
            if not (is_shown_only or beside):
                return change
        return None

    def observed_generation(self, live: Manifest) -> int | None:
        """The generation of a fleet's document that the pass was about."""
        if self.generations is not None:
            return self.generations.get(ref_of(id_of(live)))
        return generation_of(live)

    def generation_of(self, ref: ObjectRef) -> dict[str, int]:
        """`{generation: ...}` of a service, where the cluster has it."""
        generation = self._generation(ref)
        return {} if generation is None else {"generation": generation}

    def _generation(self, ref: ObjectRef) -> int | None:
        """The generation of a service's document that the pass was about, where the cluster has
        it."""
        oid = document_id(ref)
        if self.generations is not None:
            return self.generations.get(ref) if oid in self._packed else None
        return self._packed.generation(oid)

    @cached_property
    def _workloads(self) -> Mapping[ObjectRef, tuple[Workload, ...]]:
        return _grouped((w.ref, w) for w in self.desired.assignment.workloads)

    @cached_property
    def _instances(self) -> Mapping[tuple[ObjectRef, str], Instance]:
        return {(i.ref, i.target): i for i in self.instances}

    @cached_property
    def _children(self) -> Mapping[ObjectRef, Sequence[ObjectId]]:
        return self._packed.by_service()

    @cached_property
    def _manifest(self) -> Callable[[ObjectId], Manifest]:
        """A live object, decoded once for all that is asked of one service."""
        return lru_cache(maxsize=_OF_ONE_SERVICE)(self.objects.__getitem__)

    @cached_property
    def _packed(self) -> ObjectSet:
        return ObjectSet.of(self.objects)

    @cached_property
    def _blocked(self) -> Mapping[ObjectRef, Blocked]:
        by_ref: dict[ObjectRef, Blocked] = {}
        for blocked in self.plan.blocked:
            if blocked.reason == "Guarded" and blocked.token is not None:
                continue  # what it has no more use for is kept: it runs as it is declared
            for ref in (blocked.ref, *blocked.holds):
                by_ref.setdefault(ref, blocked)
        return by_ref

    @cached_property
    def _overridden(self) -> Mapping[ObjectRef, str]:
        warnings = self.desired.assignment.warnings
        return {w.ref: w.message for w in warnings if w.rule == "MemoryOverridden"}

    @cached_property
    def _held(self) -> frozenset[ObjectRef]:
        return frozenset(ref for hold in self.desired.assignment.holds for ref in hold.services)

    @cached_property
    def _changes(self) -> Mapping[ObjectRef, tuple[Change, ...]]:
        return _grouped((c.ref, c) for c in self.plan.changes)


def is_child(change: Change) -> bool:
    """Whether it is about an object of a service, and not about the service itself."""
    return change.object is not None and change.object.kind != change.ref.kind


def _grouped(pairs: Iterable[tuple[ObjectRef, T]]) -> Mapping[ObjectRef, tuple[T, ...]]:
    made: defaultdict[ObjectRef, list[T]] = defaultdict(list)
    for ref, thing in pairs:
        made[ref].append(thing)
    return {ref: tuple(things) for ref, things in made.items()}
