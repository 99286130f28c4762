"""One cluster as a target: what is there, what its objects need, and bringing them there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef
from reconciler.errors import ReconcilerError
from reconciler.kube.apiserver.errors import ClusterError
from reconciler.kube.deciding.fights import Fights
from reconciler.kube.deciding.planning import ObjectPlan, Scope, plan_objects
from reconciler.kube.instances import Running, explained, instances
from reconciler.kube.inventory import revision_of, sources_of, write_parent
from reconciler.kube.known import Known
from reconciler.kube.nearby import Nearby
from reconciler.kube.objects import Manifest, ObjectId, id_of
from reconciler.kube.packed import Objects
from reconciler.kube.publishing.heartbeats import Beat
from reconciler.kube.publishing.leaving import until_pods_are_gone
from reconciler.kube.publishing.upkeep import Upkeep, is_by_agent
from reconciler.kube.render.rendering import Renderer, Wanted
from reconciler.kube.telling.asking import PodAsker, Pods
from reconciler.kube.watches.looking import Documents, Listing, Look, Seen, Watching, strangers
from reconciler.kube.watches.noted import Noted
from reconciler.kube.writing.applying import apply_objects, object_id
from reconciler.kube.writing.outcomes import of_services
from reconciler.plan import (
    Action,
    Blocked,
    Change,
    Instance,
    Observation,
    Plan,
    RevisionState,
    Source,
    TargetState,
)
from reconciler.target import Outcome, Result

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.planner import Policy

_GIVEN_UP = 3  # passes that failed in a row: then whoever waits is told that it does not help

log = logging.getLogger(__name__)


class ClusterTarget:
    """One thread uses it: look, plan, apply, and again. `changed`, where given, is called when the
    cluster changes: then it is watched, else listed with every look. `why_not` says why nothing
    may be written there now, where another process applies this fleet; empty: it may."""

    def __init__(
        self,
        api: ApiServer,
        renderer: Renderer,
        changed: Callable[[], None] | None = None,
        why_not: Callable[[], str] = lambda: "",
        documents: Documents | None = None,
    ) -> None:
        self.api = api = Noted.like(api) if changed else api
        self.name = f"cluster/{api.name}"
        self._renderer = renderer
        others = not renderer.owns_documents
        self._look: Look = (
            Watching(api, changed, others, documents) if changed else Listing(api, others)
        )
        self.why_not = why_not
        self._fights = Fights()
        self._settled = Known[ObjectId, bool]()
        self._running = Running()
        self._upkeep = Upkeep(self.api)
        self.nearby = Nearby(self.api)
        self.pods = PodAsker(self.api)
        self.planned: Mapping[ObjectId, Manifest] = {}  # what the last plan was made from
        self._members: frozenset[ObjectId] = frozenset()  # what the last plan leads to
        self._refused: tuple[Blocked, ...] = ()  # what the last plan held back
        self._failed_passes = 0
        self._is_known = False
        self._held = ""  # why the newest revision is not applied, where waiting does not help
        self.seen = Seen(Objects({}), None)  # the last good look
        self._seen_at: float | None = None  # when that was, in epoch seconds
        self.wanted: Wanted | None = None
        self._followed: Desired | None = None
        self._rendered: Desired | None = None  # what `wanted` was made from

    def follow(self, desired: Desired) -> None:
        """From now on this is what the cluster should have."""
        self._followed = desired
        self._held, self._failed_passes = "", 0

    def observe(self) -> tuple[TargetState, tuple[Instance, ...]]:
        """What runs there. An API server that gives no answer is an unreachable target."""
        wanted = self._render()
        self._is_known = False
        try:
            self.seen = seen = self._look(wanted.fleet)
            stood = sources_of(seen.parent)
            self.nearby.look(self._desired, self._documents(), stood)
        except ClusterError as error:
            return TargetState(self.name, False, self._seen_at, str(error)), ()
        self._is_known, self._seen_at = True, time.time()
        workloads = self._desired.assignment.workloads
        meant = {w.ref: w for w in workloads if w.target == self.name}
        found = instances(self.name, seen.objects, meant, stood, self._running)
        staying = {ref for ref, workload in meant.items() if not workload.suspended}
        self.pods.ask({i.ref for i in found if not i.ready}, staying)
        state = TargetState(
            self.name,
            reachable=True,
            seen_at=self._seen_at,
            message=_not_installed(seen, self.api.name),
            renders=wanted.renders,
            incomplete=wanted.incomplete,
            revision=RevisionState(applied=revision_of(seen.parent), held=self._held),
            leaving=self.pods.left,
        )
        return state, explained(found, seen.objects, self.pods.found)

    def objects_or_none(self) -> Objects | None:
        """What is the fleet's there, as the last look found it, its documents among it whoever
        applied them; None: it found nothing out."""
        if not self._is_known:
            return None
        return self._documents()

    def beats(self) -> Mapping[str, Beat]:
        """The heartbeats of the agents beside it, as the last look found them."""
        return self.nearby.beats

    def pods_found(self) -> Pods:
        """Those of services that the last look found not ready."""
        return self.pods.found

    def plan(
        self,
        services: Plan,
        policy: Policy,
        arrived: Iterable[ObjectRef],
        observed: Observation,
    ) -> ObjectPlan:
        """What the objects need, after a look that got an answer. `arrived`: services that moved
        away and answer where they are now. Raises ClusterError."""
        assert self.wanted is not None, "a look comes first"
        if self._rendered is not self._followed:  # what the agents said was heard after the look
            self._render()
        seen = self.seen.objects
        slices = self._upkeep.look(self._desired, self.wanted.fleet, observed, seen, self.beats())
        wanted = self.wanted.objects.changed({id_of(found): found for found in slices.wanted})
        others = strangers(self.api, wanted.keys() - seen.keys())
        self._upkeep.taken(slices.wanted, others)
        live = seen.changed({**others, **dict.fromkeys(slices.left)})
        self.planned = live
        by_agents = (oid for oid, other in others.items() if is_by_agent(other))
        names = (wanted[oid] for oid in self.wanted.published)
        kept = {id_of(name): name for name in until_pods_are_gone(names, live, self.seen.slices)}
        wanted = wanted.changed({**kept, **dict.fromkeys(by_agents)})
        self._members = frozenset(wanted) | slices.left
        scope = Scope(
            target=self.name,
            fleet=self.wanted.fleet,
            resting=self._fights.resting(time.monotonic()),
            arrived=frozenset(arrived),
            stood=sources_of(self.seen.parent),
            settled=self._settled,
            incomplete=self.wanted.incomplete,
        )
        made = plan_objects(scope, services, wanted, live, policy, self._desired)
        self._refused = made.blocked
        return made

    def apply_all(self, changes: Sequence[Change], revision: str) -> tuple[Outcome, ...]:
        """Carry out what a plan says of this cluster. Never raises for what cannot be done now."""
        wanted, seen = self.wanted, self.seen
        assert wanted is not None, "a look comes first"
        objects = [change for change in changes if change.object is not None]
        services = [change for change in changes if change.object is None]
        why = self.why_not()
        if not why:
            self._upkeep.carry_out()
        if not objects and revision_of(seen.parent) == revision:
            return of_services(services, (), self._refused)
        if why:
            self._held = why
            return tuple(Outcome(change, Result.SKIPPED, why) for change in changes)
        before = revision_of(seen.parent)
        there = self._members | seen.objects.keys()
        try:
            stood = sources_of(seen.parent)
            parent = write_parent(self.api, wanted.fleet, seen.parent, there, before, stood)
            outcomes = apply_objects(
                self.api, objects, self.planned, wanted.fleet, why_not=self.why_not
            )
            failed = [outcome for outcome in outcomes if outcome.result is not Result.APPLIED]
            self._remember(outcomes)
            if not failed and not self.why_not():
                gone = {object_id(change) for change in objects if change.action is Action.DELETE}
                write_parent(self.api, wanted.fleet, parent, there - gone, revision, self._stands())
        except ReconcilerError as error:
            outcomes = tuple(Outcome(change, Result.FAILED, str(error)) for change in objects)
            failed = list(outcomes)
        self._count(failed)
        told = of_services(services, outcomes, self._refused)
        self.pods.leave(_left(outcomes, told))
        return (*outcomes, *told)

    def close(self) -> None:
        """End the watches."""
        self._look.close()
        self.api.close()

    def _render(self) -> Wanted:
        self._rendered = self._desired
        self.wanted = wanted = self._renderer.wanted(self._desired)
        return wanted

    def _documents(self) -> Objects:
        return self.seen.objects.over(self.seen.documents)

    @property
    def _desired(self) -> Desired:
        assert self._followed is not None, "nothing is followed yet"
        return self._followed

    def _stands(self) -> dict[ObjectRef, Source]:
        """Where each service and document of the cluster is declared, for the plan that removes
        it."""
        assert self.wanted is not None
        origins = self._desired.fleet.origins
        refs = frozenset(map(self.wanted.objects.ref, self.wanted.objects))
        return {
            ref: Source(origins[ref].path, origins[ref].line, None) for ref in refs & origins.keys()
        }

    def _remember(self, outcomes: Iterable[Outcome]) -> None:
        """Whom we took fields from, to notice a fight."""
        now = time.monotonic()
        for outcome in outcomes:
            change = outcome.change
            if change.action is Action.DRIFT and outcome.result is Result.APPLIED:
                for field in change.fields:
                    self._fights.took(object_id(change), field.path, change.by, now)

    def _count(self, failed: Sequence[Outcome]) -> None:
        self._failed_passes = self._failed_passes + 1 if failed else 0
        told = [o for o in failed if o.result is Result.FAILED] or failed
        self._held = told[0].message if self._failed_passes >= _GIVEN_UP else ""


def _left(objects: Iterable[Outcome], services: Iterable[Outcome]) -> Iterable[ObjectRef]:
    """Services whose pods go with what was just done."""
    for outcome in (*objects, *services):
        change = outcome.change
        kind = change.object.kind if change.object else ""
        goes = kind == "Deployment" or (not kind and change.reason == "Suspended")
        if outcome.result is Result.APPLIED and change.action is Action.DELETE and goes:
            yield change.ref


def _not_installed(seen: Seen, name: str) -> str:
    if not seen.missing:
        return ""
    return (
        f"kinds of the fleet are not installed there ({', '.join(seen.missing)}):"
        f" `reconcile install --cluster {name}` does it"
    )
