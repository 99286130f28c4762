"""What is written to a cluster after each pass: statuses on the fleet's documents, and events.

Only who leads writes anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from reconciler.api.fleet import FleetPolicy
from reconciler.api.kinds import KIND_TABLE
from reconciler.api.meta import GROUP, ObjectRef
from reconciler.core.target import Result
from reconciler.kube.crsource.source import ClusterCheckout
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.endpoints.heartbeats import AgentHeartbeat
from reconciler.kube.endpoints.node_slices import published_nodes
from reconciler.kube.event_note import EventNote
from reconciler.kube.inventory import revision_of
from reconciler.kube.left_out import left_out_by_service
from reconciler.kube.objects import Manifest, ObjectId, ref_of
from reconciler.kube.observed import observed_clusters, planned_clusters
from reconciler.kube.status.attempts import Attempts
from reconciler.kube.status.due import PATIENT_S, DueStatuses, StatusNews, takes_a_while
from reconciler.kube.status.events import EventWriter, happenings
from reconciler.kube.status.fleet_status import (
    FLEET_FIELDS,
    FleetView,
    applied_condition,
    fleet_events,
    fleet_status,
)
from reconciler.kube.status.status import (
    NODE_FIELDS,
    SERVICE_FIELDS,
    node_status,
    served_generation,
    service_status,
)
from reconciler.kube.status.view import ClusterView
from reconciler.kube.status.writer import DesiredStatus, StatusWriter
from reconciler.loop import Listener
from reconciler.memo import Memo
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.core.plan import Plan
    from reconciler.core.target import Outcome
    from reconciler.kube.client.api import ApiServer
    from reconciler.loop import Following, Pass
    from reconciler.loop.desired import Desired

Objects = Mapping[ObjectId, Manifest]

_TOLD = frozenset(kind.name for kind in KIND_TABLE.values() if kind.has_status)


@dataclass(slots=True)
class ClusterStatusWriter:
    """Writes statuses and events to one cluster. `stays`: there are more passes, so that what may
    wait can (`due.py`)."""

    api: ApiServer
    leads: Callable[[], bool]
    identity: str
    stays: bool = False
    statuses: StatusWriter = field(init=False)
    events: EventWriter = field(init=False)
    is_behind: bool = field(init=False, default=False)  # something was left that is due
    _written: Memo[ObjectRef, bool] = field(init=False, default_factory=Memo)  # it is there already
    _serves: Memo[ObjectRef, int | None] = field(init=False, default_factory=Memo)  # as is said
    _since: Memo[ObjectRef, float] = field(init=False, default_factory=Memo)  # that it is so

    def __post_init__(self) -> None:
        self.statuses = StatusWriter(self.api)
        self.events = EventWriter(self.api, self.identity)

    def report(self, done: Pass, following: Following | None) -> tuple[int, int]:
        """How many statuses and events were written; none for a cluster that gave no answer. Raises
        ClusterError."""
        plan, cluster = done.plan, self.api.name
        if (seen := self._seen(done)) is None:
            return 0, 0
        view, documents, parent = seen
        fleets = self._fleets(view, following, parent, documents)
        entries = chain(
            (_fleet_entry(of, live) for of, live in fleets), self.entries(view, documents)
        )
        notes = chain.from_iterable(fleet_events(of, live) for of, live in fleets)
        happened = (*notes, *happenings(plan, done.outcomes, cluster), *_contributed(plan, cluster))
        written = self.statuses.write(entries)
        return written, self.events.write(happened, documents)

    def report_served(self, planned: Pass) -> int:
        """Write which services serve by now, where they would have to wait for a large plan. How
        many were written. Raises ClusterError."""
        if not self.stays or not takes_a_while(planned.plan, self.api.name):
            return 0
        if (seen := self._seen(planned)) is None:
            return 0
        view, documents, _ = seen
        return self.statuses.write(self.served(view, documents), are_all=False)

    def _seen(
        self, planned: Pass
    ) -> tuple[ClusterView, Mapping[ObjectRef, Manifest], Manifest | None] | None:
        """What was seen of the cluster, its documents and its set's parent. None: it gave no
        answer, or is another's to write to."""
        desired, cluster = planned.desired, self.api.name
        state = observed_clusters(planned.observed).get(f"cluster/{cluster}")
        if state is None or not self.leads():
            return None
        view = ClusterView(
            cluster=cluster,
            desired=desired,
            plan=planned.plan,
            instances=planned.observed.instances,
            objects=state.documents,
            pods=state.pods.troubled,
            leases=_leases(desired, cluster, state.nearby.heartbeats),
            failed=_failures(planned.outcomes, cluster),
            left_out=left_out_by_service(state.left_out),
            generations=_generations(desired, cluster),
        )
        return view, _Documents(state.documents, self.statuses.current), state.snapshot.parent

    def _fleets(
        self,
        view: ClusterView,
        following: Following | None,
        parent: Manifest | None,
        documents: Mapping[ObjectRef, Manifest],
    ) -> tuple[tuple[FleetView, Manifest], ...]:
        """The live Fleet with what its status is made from; none where it is not there, or goes."""
        applied = revision_of(parent)
        lives = (documents.get(policy.ref) for policy in view.desired.fleet.all(FleetPolicy))
        return tuple(
            (
                FleetView(
                    following,
                    applied_condition(view, applied),
                    applied,
                    view.observed_generation(live),
                ),
                live,
            )
            for live in lives
            if live and following and not live["metadata"].get("deletionTimestamp")
        )

    def entries(
        self, view: ClusterView, documents: Mapping[ObjectRef, Manifest]
    ) -> Iterator[DesiredStatus]:
        """What the documents should say now, but for those that are as before, and said so
        then."""
        news = tuple(self._news(view, documents))
        now = DueStatuses.of(news) if self.stays else DueStatuses(news, ())
        yield from self._made(view, documents, now.urgent)
        left, until = len(now.patient), time.monotonic() + PATIENT_S
        for each in now.patient:
            yield from self._made(view, documents, (each,))
            left -= 1
            if time.monotonic() > until:
                break
        self.is_behind = left > 0

    def served(
        self, view: ClusterView, documents: Mapping[ObjectRef, Manifest]
    ) -> Iterator[DesiredStatus]:
        """What is to be said of them before a plan is applied that takes a while."""
        serve = (ref for ref in documents if view.serves(ref) is not None)
        begin = (ref for ref in serve if self._begins_or_ends(view, documents, ref))
        news = (StatusNews(ref, view.grounds(ref), is_urgent=True) for ref in begin)
        new = (n for n in news if n.grounds and not self._written.get(n.ref, n.grounds))
        yield from self._made(view, documents, new)

    def _made(
        self,
        view: ClusterView,
        documents: Mapping[ObjectRef, Manifest],
        news: Iterable[StatusNews],
    ) -> Iterator[DesiredStatus]:
        """The status of each; what is there already is not looked at again while it stays so."""
        now = timestamp(time.time())
        for each in news:
            entry = _entry(view, documents[each.ref], now)
            if each.grounds and (entry is None or entry.is_there):
                self._written.put(each.ref, each.grounds, finding=True)
            if entry is not None:
                yield entry

    def _news(
        self, view: ClusterView, documents: Mapping[ObjectRef, Manifest]
    ) -> Iterator[StatusNews]:
        """What may say something else than it does."""
        now = time.monotonic()
        for memo in (self._written, self._serves, self._since):
            memo.keep(documents.keys())
        for ref in documents:
            if ref.kind not in _TOLD:
                continue
            if (grounds := view.grounds(ref)) is None:
                yield StatusNews(ref, None, is_urgent=True)
            elif not self._written.get(ref, grounds):
                is_urgent = self._begins_or_ends(view, documents, ref)
                since = self._since.find(ref, grounds, lambda: now)
                yield StatusNews(ref, grounds, is_urgent, now - since)

    def _begins_or_ends(
        self, view: ClusterView, documents: Mapping[ObjectRef, Manifest], ref: ObjectRef
    ) -> bool:
        """Whether its status says otherwise of who serves."""
        given, say = (view.document_state(ref),), partial(_served_generation, documents, ref)
        return view.begins_or_ends(ref, self._serves.find(ref, given, say))


def _served_generation(documents: Mapping[ObjectRef, Manifest], ref: ObjectRef) -> int | None:
    return served_generation(documents[ref])


def _entry(view: ClusterView, live: Manifest, now: str) -> DesiredStatus | None:
    """None: it goes, or is a node without an agent."""
    if live["metadata"].get("deletionTimestamp"):
        return None
    if live["kind"] == "InferenceService":
        return DesiredStatus(live, service_status(view, live, now), SERVICE_FIELDS)
    if live["kind"] == "FleetNode" and "agent" in (live.get("spec") or {}):
        return DesiredStatus(live, node_status(view, live, now), NODE_FIELDS)
    return None


def _fleet_entry(of: FleetView, live: Manifest) -> DesiredStatus:
    now = timestamp(time.time())
    return DesiredStatus(live, fleet_status(of, live, now), FLEET_FIELDS)


class _Documents(Mapping[ObjectRef, Manifest]):
    """The fleet's own documents as they are now, each made when it is looked at."""

    def __init__(self, objects: Objects, current: Callable[[Manifest], Manifest]) -> None:
        self._objects, self._current = objects, current
        self._ids = {ref_of(oid): oid for oid in objects if oid.group == GROUP}

    def __getitem__(self, ref: ObjectRef) -> Manifest:
        return self._current(self._objects[self._ids[ref]])

    def __contains__(self, ref: object) -> bool:
        return ref in self._ids  # without making it

    def keys(self) -> KeysView[ObjectRef]:
        return self._ids.keys()

    def __iter__(self) -> Iterator[ObjectRef]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def _contributed(plan: Plan, cluster: str) -> Iterable[EventNote]:
    """What contributors of the cluster's objects have to tell."""
    planned = planned_clusters(plan).get(f"cluster/{cluster}")
    return planned.contribution.events if planned else ()


def _leases(
    desired: Desired, cluster: str, heartbeats: Mapping[str, AgentHeartbeat]
) -> Mapping[str, LeaseState]:
    """The state of each heartbeat that this cluster is there to receive."""
    nodes = published_nodes(desired, cluster)
    states = {node: beat.state for node, beat in heartbeats.items() if node in nodes}
    return {node: state for node, state in states.items() if state is not LeaseState.NONE}


def _failures(outcomes: Iterable[Outcome], cluster: str) -> Mapping[ObjectRef, str]:
    failed = (o for o in outcomes if o.result is Result.FAILED)
    return {o.change.ref: o.message for o in failed if o.change.target == f"cluster/{cluster}"}


def _generations(desired: Desired, cluster: str) -> Mapping[ObjectRef, int] | None:
    """Where the revision was made of this cluster's objects, theirs."""
    checkout = desired.checkout
    here = isinstance(checkout, ClusterCheckout) and checkout.cluster == cluster
    return checkout.generations if here and isinstance(checkout, ClusterCheckout) else None


class StatusListener(Listener):
    """Writes to every cluster what a pass found there, once it is over."""

    def __init__(
        self,
        writers: Sequence[ClusterStatusWriter],
        on_written: Callable[[int, int], None],
        pass_soon: Callable[[], None],
    ) -> None:
        """`on_written` learns how many statuses and events were written; `pass_soon` asks for
        another pass, where some were left to it."""
        self._writers = tuple(writers)
        self._on_written = on_written
        self._pass_soon = pass_soon
        self._attempts = Attempts()
        self._following: Following | None = None  # as the source was read last

    def on_fetched(self, following: Following) -> None:
        self._following = following

    def on_planned(self, planned: Pass) -> None:
        for writer in self._writers:
            self._attempts.attempt(writer.api.name, partial(self._write_served, writer, planned))

    def on_applied(self, done: Pass) -> None:
        for writer in self._writers:
            self._attempts.attempt(writer.api.name, partial(self._write, writer, done))

    def on_ended(self, seconds: float) -> None:
        if any(writer.is_behind for writer in self._writers):
            self._pass_soon()

    def _write_served(self, writer: ClusterStatusWriter, planned: Pass) -> None:
        self._on_written(writer.report_served(planned), 0)

    def _write(self, writer: ClusterStatusWriter, done: Pass) -> None:
        self._on_written(*writer.report(done, self._following))
