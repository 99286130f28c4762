"""One cluster: what is there, what its objects need, and bringing them there.

A pass hands values on: `observe` -> ClusterObservation, `plan` -> PlannedCluster, `apply` ->
outcomes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.api.errors import ReconcilerError
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Location, Observation, RevisionState, TargetState
from reconciler.core.plan import Action, Change, Plan
from reconciler.core.target import Outcome, Result
from reconciler.kube import accepted
from reconciler.kube.adoption.adoptable import adoptable, with_adopted
from reconciler.kube.apply.objects import apply_objects, object_id
from reconciler.kube.apply.outcomes import of_inventory, of_services, pods_leaving
from reconciler.kube.apply.progress import ApplyProgress, applies_s
from reconciler.kube.apply.refusals import Refusals
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.contribution import ClusterPlanning, Contributor, fold
from reconciler.kube.contributors import CONTRIBUTORS
from reconciler.kube.diff.fights import Fights
from reconciler.kube.diff.planning import Compared, Scope, plan_objects
from reconciler.kube.endpoints.heartbeats import Heartbeats
from reconciler.kube.endpoints.takeover import is_by_agent
from reconciler.kube.informer.observer import (
    ClusterObserver,
    Documents,
    ListingObserver,
    WatchingObserver,
)
from reconciler.kube.informer.strangers import Strangers
from reconciler.kube.inventory import (
    defaults_of,
    followed_of,
    noted_revision,
    revision_of,
    sources_of,
    write_parent,
)
from reconciler.kube.left_out import left_out_note, not_installed_note
from reconciler.kube.nearby import agents_nearby
from reconciler.kube.objects import Manifest, ObjectId
from reconciler.kube.observed import ClusterObservation, ObservedCluster, PlannedCluster
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.running.absent_claims import absent_claims
from reconciler.kube.running.acceptance import of_others, unaccepted_note
from reconciler.kube.running.instances import Running, explained, instances
from reconciler.kube.running.pod_reader import PodReader
from reconciler.kube.running.pod_source import FollowedPods, ListedPods, PodSource
from reconciler.kube.running.pool_nodes import PoolNodes
from reconciler.kube.status.refusals import memory_refusals
from reconciler.memo import Memo
from reconciler.placement.defaults import otherwise_applied, taken
from reconciler.source.history import NotedRevision, SourcePlace, is_commit

if TYPE_CHECKING:
    from reconciler.core.planner import Policy
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.object_set import ObjectSet
    from reconciler.loop.desired import Desired


class ClusterTarget:
    """One thread at a time uses it. `changed`, where given, is called when the cluster changes:
    then it is watched, else listed each time. `unfinished`, where given, is called when a pass has
    left a part of a large plan to the next one: without it a pass applies all. `write_refusal` says
    why nothing may be written there now, where another process applies this fleet.

    What lives between passes: caches (the observer's, the renderer's, the memos), who took
    which field from us, which writes were refused, which services leave, the agents' heartbeats,
    and how far a revision is.
    """

    def __init__(
        self,
        api: ApiServer,
        renderer: ObjectRenderer,
        changed: Callable[[], None] | None = None,
        write_refusal: Callable[[], str | None] = lambda: None,
        documents: Documents | None = None,
        place: SourcePlace | None = None,
        contributors: Sequence[Contributor] = CONTRIBUTORS,
        unfinished: Callable[[], None] | None = None,
    ) -> None:
        """`place`: where the commits are from that are applied; None: they are of no repository."""
        self.api = api
        self.name = f"cluster/{api.name}"
        self._renderer = renderer
        others = not renderer.owns_documents
        self._observer: ClusterObserver = (
            WatchingObserver(api, changed, others, documents)
            if changed
            else ListingObserver(api, others)
        )
        self._write_refusal = write_refusal
        self._unfinished = unfinished
        self._place = place
        self._fights = Fights()
        self._refusals = Refusals()
        self._compared = Compared()
        self._absent = frozenset[ObjectId]()  # names without an object, as an unfinished pass saw
        self._stood = Memo[str, Mapping[ObjectRef, Location]]()
        self._running = Running()
        self._refused = Memo[ObjectRef, str]()
        self._unaccepted = Memo[str, str]()
        self._heartbeats = Heartbeats(api)
        self._pod_source: PodSource = FollowedPods(api, changed) if changed else ListedPods(api)
        self._pods = PodReader(self._pod_source)
        self._pool_nodes = PoolNodes(api)
        self._contributors = tuple(contributors)
        self._progress = ApplyProgress()
        self._seen_at: float | None = None  # the last good look, in epoch seconds

    def observe(self, desired: Desired) -> ClusterObservation:
        """What runs there. An API server that gives no answer is an unreachable target."""
        began = time.monotonic()
        wanted = self._renderer.wanted(desired)
        try:
            seen = self._observer(wanted.fleet)
            wanted = wanted.where(seen.lacking)
            strangers = Strangers(self.api, seen.objects.keys(), self._absent)
            adoption = adoptable(self.api, wanted, seen, strangers)
            seen = replace(seen, objects=with_adopted(seen.objects, adoption))
            stood = self._stood.find(wanted.fleet, (seen.parent,), partial(sources_of, seen.parent))
            documents = seen.objects.over(seen.documents)
            nearby = agents_nearby(
                *(self._heartbeats, self.api.name, desired, documents, stood),
                not_installed=not_installed_note(seen.missing, self.api.name),
            )
            contribute = [each.observe(wanted, seen, documents) for each in self._contributors]
        except ClusterError as error:
            return ClusterObservation(TargetState(self.name, False, self._seen_at, str(error)))
        self._seen_at = time.time()
        meant = {w.ref: w for w in desired.assignment.workloads if w.target == self.name}
        instances_here = instances(self.name, seen.objects, meant, stood, self._running)
        staying = {ref for ref, workload in meant.items() if not workload.suspended}
        pods = self._pods.find(
            wanted.fleet, {i.ref for i in instances_here if not i.ready}, staying
        )
        progress = self._progress
        if progress.stands_by and not self._write_refusal():
            progress = ApplyProgress()
        hold_reason = progress.held if progress.revision == desired.fleet.revision else ""
        state = TargetState(
            target=self.name,
            reachable=True,
            seen_at=self._seen_at,
            message=nearby.not_installed
            or self._pool_nodes.lacking(meant[ref] for ref in staying)
            or otherwise_applied(defaults_of(seen.parent), desired.fleet)
            or left_out_note(wanted.left_out)
            or self._unaccepted_note(wanted.fleet, seen.objects),
            renders=wanted.renders,
            incomplete=wanted.incomplete,
            revision=RevisionState(applied=revision_of(seen.parent), held=hold_reason),
            leaving=pods.left,
            refused=memory_refusals(meant, documents, wanted.documents, self._refused),
        )
        cluster = ObservedCluster(
            began=began,
            snapshot=seen,
            nearby=nearby,
            pods=pods,
            contribute=tuple(contribute),
            strangers=strangers,
            adoption=adoption,
            left_out=wanted.left_out,
        )
        running = explained(instances_here, seen.objects, pods.troubled, self._running)
        return ClusterObservation(state, running, cluster)

    def _unaccepted_note(self, fleet: str, objects: ObjectSet) -> str:
        others = of_others(objects)
        make = partial(unaccepted_note, objects, others)
        return self._unaccepted.find(fleet, objects.states_of(others), make)

    def plan(
        self,
        desired: Desired,
        cluster: ObservedCluster,
        observed: Observation,
        services: Plan,
        policy: Policy,
    ) -> PlannedCluster:
        """Plan the objects that the plan of the `services` needs. Raises ClusterError."""
        own = cluster.snapshot.objects
        wanted = self._renderer.wanted(desired).where(cluster.snapshot.lacking)
        strangers, self._absent = cluster.strangers, frozenset()
        at = ClusterPlanning(
            target=self.name,
            desired=desired,
            wanted=wanted,
            snapshot=cluster.snapshot,
            nearby=cluster.nearby,
            observed=observed,
            services=services,
            policy=policy,
            strangers=strangers,
        )
        given = fold(contribute(at) for contribute in cluster.contribute)
        known = own.keys()  # what is adopted, too, which was a stranger's
        others = strangers.under(oid for oid in given.wanted if oid not in known)
        # What the agent of a node wrote is taken over beside the plan, or stays that agent's.
        given = given.without(oid for oid, other in others.items() if is_by_agent(other))
        live = own.changed(others)
        scope = Scope(
            target=self.name,
            fleet=wanted.fleet,
            resting=self._fights.resting(time.monotonic()),
            stood=cluster.nearby.stood,
            incomplete=wanted.incomplete,
            adopting=frozenset(cluster.adoption.objects),
            not_yet=cluster.adoption.left,
            lacking=absent_claims(desired, self.name, own, strangers),
            unrendered=wanted.unrendered,
        )
        compared = live.changed(dict.fromkeys(given.set_aside))
        planned = plan_objects(
            *(scope, services, given.wanted, compared, policy, desired), self._compared
        )
        here = (w for w in desired.assignment.workloads if w.target == self.name)
        return PlannedCluster(
            observed=cluster,
            fleet=wanted.fleet,
            objects=planned.joined(given.changes),
            live=live,
            contribution=given,
            absent=strangers.absent,
            declared_at=partial(_declared_at, desired, wanted.objects),
            defaults={each.variable: each.value for each in taken(desired.fleet, here)},
        )

    def apply(
        self, cluster: PlannedCluster, changes: Sequence[Change], revision: str
    ) -> tuple[Outcome, ...]:
        """Carry out changes of a plan for this cluster. Never raises: what cannot be done is an
        Outcome."""
        services = [change for change in changes if change.object is None]
        blocked = cluster.objects.blocked
        why = self._write_refusal()
        if not why:
            for each in cluster.contribution.unplanned:
                each.write(self.api)
        parent = cluster.observed.snapshot.parent
        is_noted = followed_of(parent) == self._followed(parent, cluster.fleet, revision)
        if len(services) == len(changes) and revision_of(parent) == revision and (is_noted or why):
            # Also where another process applied it while this one stood by.
            self._progress = ApplyProgress(revision)
            return of_services(services, (), blocked)
        if why:
            self._progress = ApplyProgress(revision, held=why, stands_by=True)
            return tuple(Outcome(change, Result.SKIPPED, why) for change in changes)
        outcomes = self._apply_objects(cluster, [c for c in changes if c.object], revision)
        tried = {object_id(outcome.change) for outcome in outcomes}
        waiting = {c.ref for c in changes if c.object and object_id(c) not in tried}
        if waiting and self._unfinished:
            self._absent = cluster.absent
            self._unfinished()
        else:
            failed = [outcome for outcome in outcomes if outcome.result is not Result.APPLIED]
            self._progress = self._progress.after(revision, failed)
        whole = [change for change in services if change.ref not in waiting]
        reported = of_services(whole, outcomes, blocked)
        self._pods.leave(pods_leaving(outcomes, reported))
        return (*outcomes, *reported)

    def close(self) -> None:
        """End the watches."""
        self._observer.close()
        self._pod_source.close()
        self.api.close()

    def _apply_objects(
        self, cluster: PlannedCluster, changes: Sequence[Change], revision: str
    ) -> tuple[Outcome, ...]:
        """Between two writes of the set's parent: before, it lists what was and what will be a
        member, so that no object is ever out of sight; after, what is one."""
        seen, live = cluster.observed, cluster.observed.snapshot.objects
        parent, there = seen.snapshot.parent, cluster.contribution.members | live.keys()
        fleet, before = (
            cluster.fleet,
            (revision_of(parent), sources_of(parent), defaults_of(parent)),
        )
        after = (revision, cluster.declared_at(), cluster.defaults)
        followed = self._followed(parent, fleet, revision)  # from its first write on
        looked_s = time.monotonic() - seen.began
        try:
            parent = write_parent(self.api, fleet, parent, there, *before, followed)
            outcomes = apply_objects(
                *(self.api, changes, cluster.live, fleet),
                refusals=self._refusals,
                write_refusal=self._write_refusal,
                within_s=applies_s(looked_s) if self._unfinished else math.inf,
            )
            self._remember(outcomes)
            applied = sum(outcome.result is Result.APPLIED for outcome in outcomes)
            is_whole = applied == len(changes)
            if is_whole and not self._write_refusal():
                gone = {object_id(change) for change in changes if change.action is Action.DELETE}
                write_parent(self.api, fleet, parent, there - gone, *after, followed)
        except ReconcilerError as error:
            # Writing down what was applied is not in the plan: its failure is reported here.
            tried = changes or [of_inventory(self.name, fleet)]
            return tuple(Outcome(change, Result.FAILED, str(error)) for change in tried)
        return outcomes

    def accepts(self, fleet: str, head: str) -> bool:
        """Whether the Fleet is annotated with this head."""
        try:
            return accepted.is_accepted(self.api, fleet, head)
        except ClusterError:  # then it is held until the next fetch
            return False

    def withdraw(self, fleet: str) -> None:
        """Take that annotation away, where it is there and may be."""
        if not self._write_refusal():
            with contextlib.suppress(ClusterError):
                accepted.withdraw(self.api, fleet)

    def noted(self) -> NotedRevision | None:
        """The commit of its repository that was followed last there. Raises ClusterError."""
        return noted_revision(self.api, self._place.fleet) if self._place else None

    def _followed(self, parent: Manifest | None, fleet: str, revision: str) -> NotedRevision | None:
        """What is to be noted of a revision that is applied: as it is noted, where it is."""
        known = followed_of(parent)
        if self._place is None or not is_commit(revision):
            return known
        at = known.noted_at if known else 0.0
        if (same := self._place.noted(fleet, revision, at)) == known:
            return known
        return replace(same, noted_at=float(round(time.time())))

    def _remember(self, outcomes: Iterable[Outcome]) -> None:
        """Whom we took fields from, to notice a fight."""
        now = time.monotonic()
        for outcome in outcomes:
            change = outcome.change
            if change.action is Action.DRIFT and outcome.result is Result.APPLIED:
                for field in change.fields:
                    self._fights.took(object_id(change), field.path, change.by, now)


def _declared_at(desired: Desired, objects: ObjectSet) -> Mapping[ObjectRef, Location]:
    """Where each service and document of the cluster is declared."""
    origins = desired.fleet.origins
    refs = frozenset(map(objects.ref, objects))
    return {
        ref: Location(origins[ref].path, origins[ref].line, None) for ref in refs & origins.keys()
    }
