"""What to do with each object of one cluster. Pure: same input, same plan.

The services were planned before (planner.make_plan), with their guards: here every object of a
service that goes on is compared with what is there, and of what is there and no longer declared it
is said what goes. Nothing without our labels is ever touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.api.isolated import INTERNAL
from reconciler.api.meta import ObjectRef
from reconciler.core.comparison import Causes
from reconciler.core.declared import DeclaredField
from reconciler.core.observation import Location
from reconciler.core.plan import Action, Blocked, Change, Plan
from reconciler.core.planner import Policy
from reconciler.kube.diff.kept_steps import Grounds, KeptSteps
from reconciler.kube.diff.managed import entries
from reconciler.kube.diff.mounted import still_mounted
from reconciler.kube.diff.pruning import prune
from reconciler.kube.diff.service_actions import ServiceActions, is_document
from reconciler.kube.diff.standing import Adopted, adopted
from reconciler.kube.diff.step import NO_STEPS, ObjectStep, ObjectSteps, step_of
from reconciler.kube.diff.untouched import is_untouched
from reconciler.kube.inventory import fleet_of, is_ours
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, ObjectId, ref_of
from reconciler.memo import Memo, Same


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What the objects of one cluster need, beside the services' own changes. `unchanged` counts
    services and documents of which nothing changes."""

    changes: tuple[Change, ...]
    blocked: tuple[Blocked, ...]
    unchanged: int

    def joined(self, changes: Iterable[Change]) -> ObjectPlan:
        """Add changes of services of which nothing else changes."""
        more = tuple(changes)
        fresh = (
            {c.ref for c in more} - {c.ref for c in self.changes} - {b.ref for b in self.blocked}
        )
        return replace(
            self,
            changes=(*self.changes, *more),
            unchanged=max(0, self.unchanged - len(fresh)),
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """Which cluster (`cluster/NAME`) and which fleet a plan is for. `resting`: fields that another
    program and we take from each other, as (object, field) -> what to say. `stood`: where each
    document was declared when it was applied last. `incomplete`: why no service may go, as what is
    missing may be a mistake. `adopting`: what of another controller's becomes ours; `not_yet`: what
    does not, and what it waits for. `lacking`: services that name a claim which is not there;
    `unrendered`: services and documents with which this program fails, with the reason."""

    target: str
    fleet: str
    resting: Mapping[tuple[ObjectId, str], str] = field(default_factory=dict)
    stood: Mapping[ObjectRef, Location] = field(default_factory=dict)
    incomplete: str = ""
    adopting: Set[ObjectId] = frozenset()
    not_yet: Mapping[ObjectId, str] = field(default_factory=dict)
    lacking: Mapping[ObjectRef, str] = field(default_factory=dict)
    unrendered: Mapping[ObjectRef, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """What earlier passes found: what objects need, and by all that it follows from the last plan.
    A pass that only statuses woke makes none."""

    steps: KeptSteps = field(default_factory=KeptSteps)
    plan: Memo[str, ObjectPlan] = field(default_factory=Memo)


def plan_objects(
    scope: Scope,
    services: Plan,
    desired: Mapping[ObjectId, Manifest],
    live: Mapping[ObjectId, Manifest],
    policy: Policy,
    causes: Causes,
    known: Compared | None = None,
) -> ObjectPlan:
    """Compare object by object. `desired` carry our labels (inventory.labelled); `live` is all
    that carries them in the cluster, and whatever else is known to have a desired object's name."""
    wanted, live, known = ObjectSet.of(desired), ObjectSet.of(live), known or Compared()
    given = (scope, services.changes, services.blocked, policy, Same(causes))
    make = partial(_plan, scope, services, wanted, live, policy, causes, known)
    return known.plan.find(scope.target, (*given, wanted.states(), live.declared_states()), make)


def _plan(
    scope: Scope,
    services: Plan,
    wanted: ObjectSet,
    live: ObjectSet,
    policy: Policy,
    causes: Causes,
    known: Compared,
) -> ObjectPlan:
    target = scope.target
    staying = scope.lacking.keys() | scope.unrendered.keys()
    standing = ServiceActions.of(services, target, staying)
    sources = _ChangeSources(causes, scope.stood, standing.changes)
    adoption = (scope.adopting, scope.not_yet)
    rules = (scope.fleet, scope.resting, policy.drift_enforced, Same(causes), *adoption)
    given = (wanted.states(), live.declared_states(), standing.about(), scope.stood, rules)
    for oid in known.steps.stale(wanted, Grounds(*given)):
        if standing.keeps(wanted.ref(oid), oid):
            known.steps.put(oid, NO_STEPS, is_settled=False)
            continue
        steps = _compared(scope, oid, wanted, live, policy, standing, sources)
        known.steps.put(oid, steps, is_settled=oid in live and steps == NO_STEPS)
    changes = [change for steps in known.steps for change in steps.changes]
    blocked = [
        *(_lacking(scope, ref, claim, sources) for ref, claim in scope.lacking.items()),
        *(
            Blocked(ref, INTERNAL, f"{why}; left as it is", sources.where(ref), target, (ref,))
            for ref, why in scope.unrendered.items()
        ),
        *(held for steps in known.steps for held in steps.blocked),
    ]
    left = live.only(live.keys() - wanted.keys())
    left = left.changed(dict.fromkeys(still_mounted(wanted, live, left, standing.rolls)))
    there = wanted.refs(live.keys())
    pruned = prune(
        target,
        _may_go(scope, standing, left, live),
        declared=wanted.refs(wanted.keys()),
        running={*map(left.ref, left), *there},
        leaving=standing.leaving,
        policy=policy,
        where=sources.where,
        incomplete=scope.incomplete,
    )
    changes += pruned.changes
    blocked += pruned.blocked
    unchanged = len(there - {c.ref for c in changes} - {b.ref for b in blocked})
    return ObjectPlan(tuple(changes), tuple(blocked), unchanged)


def _compared(
    scope: Scope,
    oid: ObjectId,
    wanted: ObjectSet,
    live: ObjectSet,
    policy: Policy,
    standing: ServiceActions,
    sources: _ChangeSources,
) -> ObjectSteps:
    """What one object needs."""
    ref, have = wanted.ref(oid), live.get(oid)  # once: packed ones are decoded each time
    want = wanted.later(oid) if have is None else wanted[oid]
    if have is not None and not is_ours(have, scope.fleet):
        return ObjectSteps(blocked=(_not_ours(scope, ref, oid, have, sources.where(ref)),))
    is_adopting = oid in scope.adopting
    if have is not None and not is_adopting and _is_as_it_should_be(want, have):
        return NO_STEPS
    at = ObjectStep(
        scope.target,
        oid,
        ref,
        sources.where(ref),
        policy.drift_enforced,
        sources.is_new(ref, oid),
        adopts=is_adopting,
        adopted=_adopted(oid, have, live),
    )
    steps = step_of(at, want, have, ref in standing.rolls, scope.resting)
    if not is_document(oid):
        return steps
    return steps._replace(changes=tuple(sources.by_field(change) for change in steps.changes))


def _adopted(oid: ObjectId, have: Manifest | None, live: ObjectSet) -> Adopted | None:
    """How it stood when it was adopted. A Service goes with its Deployment: made anew, that has our
    pods' labels alone."""
    beside = live.get(_deployment_of(oid)) if oid.kind == "Service" else have
    return adopted(have) if have is not None and beside is not None and adopted(beside) else None


def _deployment_of(oid: ObjectId) -> ObjectId:
    """The Deployment that a Service leads to: they have one name."""
    return ObjectId("apps", "Deployment", oid.namespace, oid.name)


@dataclass(frozen=True, slots=True)
class _ChangeSources:
    """Where the changes of objects come from, for people."""

    causes: Causes
    stood: Mapping[ObjectRef, Location]
    changes: Mapping[ObjectRef, Change]  # of the services

    def where(self, ref: ObjectRef) -> Location | None:
        """The line that a change of the service comes from, else the document's own, or the one on
        which it stood with the commit that removed it."""
        change = self.changes.get(ref)
        if change is not None and change.source is not None:
            return change.source
        return self.causes.where(ref) or self.causes.removal(ref, self.stood.get(ref))

    def is_new(self, ref: ObjectRef, oid: ObjectId) -> bool:
        """Whether what an object represents was not there before. A document that was applied and
        is missing was removed by someone else."""
        change = self.changes.get(ref)
        if change is not None and change.action is Action.CREATE:
            return True
        return is_document(oid) and ref not in self.stood

    def by_field(self, change: Change) -> Change:
        """A document's change, with the lines of the fields that changed."""
        if change.action is not Action.UPDATE or change.ref in self.changes:
            return change
        fields = tuple(
            replace(f, source=self.causes.declared((DeclaredField(change.ref, f.path),)))
            for f in change.fields
        )
        first = next((field.source for field in fields if field.source), None)
        return replace(change, fields=fields, source=first or change.source)


def _is_as_it_should_be(manifest: Manifest, have: Manifest) -> bool:
    return not have["metadata"].get("deletionTimestamp") and is_untouched(manifest, have)


def _not_ours(
    scope: Scope, ref: ObjectRef, oid: ObjectId, have: Manifest, where: Location | None
) -> Blocked:
    other = fleet_of(have)
    made_by = next((entry.label for entry in entries(have)), "someone")
    is_others = other not in (None, scope.fleet)
    whose = f"belongs to the fleet {other}" if is_others else f"was made by {made_by}"
    mend = "Rename one of the two, or delete that one"
    if not is_others and any(entry.is_ours for entry in entries(have)):
        whose, mend = "has lost our labels", "Delete it, and it is recreated"
    if not is_others and (controller := _controller_of(have)):
        whose, mend = f"is {controller}'s", f"Rename one of the two, or delete {controller}"
    if reason := scope.not_yet.get(oid):
        whose, mend = "is another controller's", f"It becomes ours as it stands once {reason}"
    message = (
        f"{oid.label} is there and {whose}: it stays as it is, and {ref.label} goes without it."
        f" {mend}"
    )
    return Blocked(ref, "NotOurs", message, where, scope.target, (ref,))


def _controller_of(have: Manifest) -> str | None:
    """Who made it its own, as KEDA's HTTP add-on does with a ScaledObject of the same name."""
    owners = have["metadata"].get("ownerReferences") or ()
    named = (f"{o.get('kind')} {o.get('name')}" for o in owners if o.get("controller"))
    return next(named, None)


def _lacking(scope: Scope, ref: ObjectRef, claim: str, sources: _ChangeSources) -> Blocked:
    message = (
        f"claim {claim} of namespace {ref.namespace} is not there, and its pods could not start:"
        " what runs stays. Make the claim, or name another one"
    )
    return Blocked(ref, "ClaimMissing", message, sources.where(ref), scope.target, (ref,))


def _may_go(
    scope: Scope, standing: ServiceActions, left: ObjectSet, live: ObjectSet
) -> dict[ObjectId, Manifest]:
    """What is ours and declared no more, but for all that a service has which stays as it runs: its
    document and its Models too, where nothing tells which cluster it is for."""
    stays = standing.whole | standing.running
    stays |= _models_of(live[oid] for oid in live if ref_of(oid) in stays)
    return {
        oid: have
        for oid, have in left.items()
        if is_ours(have, scope.fleet) and left.ref(oid) not in stays
    }


def _models_of(services: Iterable[Manifest]) -> frozenset[ObjectRef]:
    """The Models that live InferenceServices name."""
    refs = set()
    for service in services:
        spec, namespace = service.get("spec") or {}, service["metadata"].get("namespace", "")
        named = [spec.get("modelRef"), *(m.get("name") for m in spec.get("models") or ())]
        refs |= {ObjectRef("Model", namespace, name) for name in named if name}
    return frozenset(refs)
