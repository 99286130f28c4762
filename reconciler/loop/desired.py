"""One valid revision, decided: its objects, who runs where, and where each is declared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model, origin
from reconciler.capacity.admission import Facts, Others, Sized
from reconciler.core.declared import THE_FLEET, DeclaredField
from reconciler.core.kept_decisions import KeptDecisions
from reconciler.core.node_ports import has_port
from reconciler.core.observation import Instance, Location, Observation
from reconciler.core.plan import Blocked, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.core.prune import Before, SinceApplied, limits_of
from reconciler.fleet.fleet import Fleet, Origin
from reconciler.fleet.workload import Workload
from reconciler.loop.declared_since import DeclaredSince
from reconciler.placement.assignment import Assignment, Hold, assign, beside_others
from reconciler.placement.pods import target_of
from reconciler.source.checkout import Checkout
from reconciler.source.field_history import ChangedBy
from reconciler.source.field_value import counted, value_at
from reconciler.source.load import Loaded

CachedFacts = Callable[[Fleet, Sequence[Model]], Facts]
"""What is known of a fleet's models that are not in the repository: from a store, or from headers
that were read where they lie."""


NOTHING_BEFORE = Before()
NOTHING_SINCE: Mapping[str, SinceApplied] = MappingProxyType({})
_STAYS = "it runs, and stays as it runs; were all started anew, others would come first: "
NOTHING_REFUSED: Mapping[str, str] = MappingProxyType({})
_DIGESTS = ("spec.sha256", "spec.mmprojSha256")


def no_facts(_: Fleet, __: Sequence[Model]) -> Facts:
    """Nothing is known of models outside the repository."""
    return {}


@dataclass(frozen=True, slots=True)
class Desired:
    """What a revision wants. `fleet` is never one with errors."""

    checkout: Checkout
    loaded: Loaded
    fleet: Fleet
    facts: Facts
    assignment: Assignment
    since: DeclaredSince  # this revision beside those that targets have applied
    kept: KeptDecisions = field(default_factory=KeptDecisions, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        checkout: Checkout,
        loaded: Loaded,
        fleet: Fleet,
        cached: CachedFacts,
        before: Desired | None = None,
    ) -> Desired:
        """Decide who runs where, from model headers in the repository and in the cache. What is
        like `before` takes no time."""
        facts = _facts(loaded, fleet, cached)
        earlier = before.assignment if before else None
        since = DeclaredSince(checkout, loaded, fleet)
        return cls(checkout, loaded, fleet, facts, assign(fleet, facts, earlier), since)

    def only(self, services: Collection[ObjectRef]) -> Desired:
        """Return the same revision with the workloads of these services."""
        workloads = tuple(w for w in self.assignment.workloads if w.ref in services)
        return replace(self, assignment=replace(self.assignment, workloads=workloads))

    def refreshed(self, cached: CachedFacts) -> Desired:
        """The same revision with what is known of its models now: downloads may have ended."""
        facts = _facts(self.loaded, self.fleet, cached)
        if facts == self.facts:
            return self
        return replace(self, facts=facts, assignment=assign(self.fleet, facts, self.assignment))

    def plan(
        self,
        observed: Observation,
        confirmed: Iterable[str] = (),
        before: Before = NOTHING_BEFORE,
        refused: Mapping[str, str] = NOTHING_REFUSED,
    ) -> Plan:
        """What to change on the observed targets so that they become this revision. `before`: of
        the revision that was applied last. `refused`: models that their hosts do not give, by
        origin, with the reason."""
        at_home = _with_their_port(self.assignment.contested, observed)
        holds = beside_others(self.assignment, used_by_others(observed))
        return make_plan(
            self.fleet.revision,
            (*self.assignment.workloads, *at_home),
            [
                *(
                    self._blocked(each, observed)
                    for each in holds
                    if self._concerns(each, observed) and not _is_at_home(each, at_home)
                ),
                *self._unfetchable(observed, refused),
            ],
            observed,
            self.policy(confirmed, before, self.since.removed(observed, before)),
            self,
            self._sized,
            self.kept,
        )

    def _unfetchable(self, observed: Observation, refused: Mapping[str, str]) -> Iterator[Blocked]:
        """Services that need a model which is not there and is not given."""
        if not refused:
            return
        runs = {(i.target, i.ref, i.inputs_digest) for i in observed.instances if not i.gone}
        for want in self.assignment.workloads:
            state = observed.targets.get(want.target)
            if (
                state is None
                or want.suspended
                or (want.target, want.ref, want.inputs_digest) in runs
            ):
                continue
            for model in want.model_files:
                why = refused.get(model.origin)
                if why and state.cached.isdisjoint(model.identities):
                    ref = model.ref(want.ref.namespace)
                    cause = self.where(ref, "spec.source") or self.where(want.ref)
                    holds = (want.ref,)
                    yield Blocked(ref, "ModelUnavailable", why, cause, want.target, holds)

    def policy(
        self,
        confirmed: Iterable[str] = (),
        before: Before = NOTHING_BEFORE,
        since: Mapping[str, SinceApplied] = NOTHING_SINCE,
    ) -> Policy:
        """The Fleet's rules for carrying out a plan."""
        spec = self.fleet.policy
        return Policy(
            drift_enforced=spec.drift == "enforce",
            incomplete=self.fleet.incomplete,
            drained=frozenset(
                target_of(n) for n in self.fleet.all(FleetNode) if n.spec.drain and n.spec.agent
            ),
            prune=limits_of(
                spec.prune.max_count,
                spec.prune.max_share,
                before,
                (*spec.confirm, *confirmed),
                since,
            ),
        )

    def instances(self) -> tuple[Instance, ...]:
        """This revision in the place of an observation: what it declares, as if it all ran."""
        return tuple(
            Instance(
                ref=workload.ref,
                target=workload.target,
                runtime=workload.runtime,
                inputs=workload.inputs,
                inputs_digest=workload.inputs_digest,
                render_digest=None,
                source=Location(workload.origin.path, workload.origin.line, None),
                ready=True,
                reason="Declared",
                needs=workload.needs,
                models=tuple(model.name for model in workload.models),
            )
            for workload in self.assignment.workloads
            if not workload.suspended
        )

    def where(self, ref: ObjectRef, field: str = "") -> Location | None:
        """The line of a field of a declared object, or of the object itself."""
        origin = self.fleet.origins.get(ref)
        if origin is None:
            return None
        return self._at(ref, origin, field, self._changed_by(origin, ref, field))

    def declared(self, fields: Sequence[DeclaredField]) -> Location | None:
        """The one of these that was changed last, of those that are stated or were."""
        latest: Location | None = None
        for ref, path in fields:
            place = self._declared(self._the_fleet() if ref == THE_FLEET else ref, path)
            if place and (latest is None or self._is_newer(place, latest)):
                latest = place
        return latest

    def _declared(self, ref: ObjectRef, field: str) -> Location | None:
        origin = self.fleet.origins.get(ref)
        if origin is None:
            return None
        if field in _DIGESTS and (file := self._model_file(ref, field)):
            return Location(file, 1, self.checkout.commit_of(file))
        by = self._changed_by(origin, ref, field)
        return self._at(ref, origin, field, by) if by or self._states(ref, field) else None

    def _changed_by(self, origin: Origin, ref: ObjectRef, field: str) -> ChangedBy | None:
        history = self.checkout.history
        field = self.loaded.written_as(ref, field)
        return history.changed_by(origin.path, ref, field) if history else None

    def _at(self, ref: ObjectRef, origin: Origin, field: str, by: ChangedBy | None) -> Location:
        """Its line, with the commit: where that of the field is not known, that of the object."""
        line = self.loaded.line(ref, self._counted(ref, field)) if field else origin.line
        by = by or self._changed_by(origin, ref, "")
        return Location(origin.path, line, by.commit if by else None)

    def _is_newer(self, place: Location, than: Location) -> bool:
        history = self.checkout.history
        if history is None or than.commit is None or place.commit == than.commit:
            return False
        return place.commit is None or history.is_newer(place.commit, than.commit)

    def _states(self, ref: ObjectRef, field: str) -> bool:
        return value_at(self._document(ref), field) is not None

    def _counted(self, ref: ObjectRef, field: str) -> str:
        return counted(self._document(ref), field) if '["' in field else field

    def _document(self, ref: ObjectRef) -> dict[str, Any]:
        resource = self.fleet.objects.get(ref)  # None: it is held, and its document is refused
        if resource is None:
            return {}
        return resource.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _the_fleet(self) -> ObjectRef:
        return next((policy.ref for policy in self.fleet.all(FleetPolicy)), THE_FLEET)

    def _sized(self, node: str, ref: ObjectRef) -> Sized | None:
        """A service as it was sized for the node that takes it."""
        admissions = (a for a in self.assignment.admissions if a.node.metadata.name == node)
        return next(
            (s for admission in admissions for s in admission.admitted if s.workload.ref == ref),
            None,
        )

    def _model_file(self, ref: ObjectRef, field: str) -> str | None:
        """The file in the repository whose digest a field would be, where no line states it."""
        model = self.fleet.get(Model, ref)
        for part, _, its in model.parts if model else ():
            if its == field and part.spec.sha256 is None:
                stored = self.fleet.files.get(origin(part.spec.source, part.spec.files))
                return stored.path if stored else None
        return None

    def removal(self, ref: ObjectRef, last: Location | None) -> Location | None:
        """The line that an object last stood on, with the commit that removed it."""
        if last is None:
            return None
        history = self.checkout.history
        by = history.removed_by(last.file, ref) if history else None
        return Location(last.file, last.line, by.commit if by else None)

    def _concerns(self, hold: Hold, observed: Observation) -> bool:
        """Whether a hold is any business of the targets that are looked at. What runs there stays
        as it runs, wherever it is meant to go."""
        refs = {hold.finding.ref, *hold.services}
        if any(instance.ref in refs for instance in observed.instances):
            return True
        if hold.elsewhere:
            return False
        return not hold.nodes or any(self.target(n) in observed.targets for n in hold.nodes)

    def target(self, node: str) -> str:
        """The target that runs what is placed on a FleetNode, by its name."""
        declared = self.fleet.get(FleetNode, ObjectRef("FleetNode", "", node))
        return target_of(declared) if declared else f"node/{node}"

    def _blocked(self, hold: Hold, observed: Observation) -> Blocked:
        """Who runs where there is no room for all stays, whoever else comes first on paper."""
        finding = hold.finding
        runs = finding.rule == "MemoryFits" and self._runs_as_refused(finding.ref, observed)
        stays = _STAYS if runs else ""
        cause = self.where(finding.ref, finding.field)
        return Blocked(
            finding.ref, finding.rule, stays + finding.message, cause, None, hold.services
        )

    def _runs_as_refused(self, ref: ObjectRef, observed: Observation) -> bool:
        """Whether it runs already, on a machine, as it does not fit beside others."""
        refused = {
            (sized.workload.target, sized.workload.inputs_digest)
            for admission in self.assignment.admissions
            for sized in admission.refused
            if sized.workload.ref == ref and not admission.is_pool
        }
        return any(
            instance.ref == ref and (instance.target, instance.inputs_digest) in refused
            for instance in observed.instances
        )


def _with_their_port(contested: Iterable[Workload], observed: Observation) -> tuple[Workload, ...]:
    """The services that have the port they state, where several state it."""
    if not (contested := tuple(contested)):
        return ()
    has = {(i.target, i.ref, i.port) for i in observed.instances if has_port(i)}
    return tuple(w for w in contested if (w.target, w.ref, w.port) in has)


def _is_at_home(hold: Hold, workloads: Iterable[Workload]) -> bool:
    """Whether it is held for a port that it has."""
    return hold.port is not None and any(
        w.ref == hold.finding.ref and w.port == hold.port and w.node in hold.nodes
        for w in workloads
    )


def used_by_others(observed: Observation) -> Others:
    """What is known of it, by the nodes that were observed."""
    by_node = {
        target.removeprefix("node/"): {
            pool.name: pool.used_by_others_bytes
            for pool in state.pools
            if pool.used_by_others_bytes
        }
        for target, state in observed.targets.items()
        if target.startswith("node/")
    }
    return {node: used for node, used in by_node.items() if used}


def _facts(loaded: Loaded, fleet: Fleet, cached: CachedFacts) -> Facts:
    needed = (part for model in fleet.all(Model) for part, _, _ in model.parts)
    absent = [model for model in needed if model.ref not in loaded.facts]
    return {**loaded.facts, **cached(fleet, absent)} if absent else loaded.facts
