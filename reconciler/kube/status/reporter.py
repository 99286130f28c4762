"""What is written to a cluster after each pass: statuses on the fleet's documents, and events.

A Reporter of the loop, around another one. Only who leads tells a cluster anything.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from reconciler.api.errors import ReconcilerError
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
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest, ObjectId, ref_of
from reconciler.kube.observed import observed_clusters, planned_clusters
from reconciler.kube.speeds.reader import PodSpeeds, SpeedLook
from reconciler.kube.status.events import EventWriter, happenings
from reconciler.kube.status.fleet_status import (
    FLEET_FIELDS,
    FleetView,
    applied_condition,
    fleet_events,
    fleet_status,
)
from reconciler.kube.status.status import NODE_FIELDS, SERVICE_FIELDS, node_status, service_status
from reconciler.kube.status.view import ClusterView
from reconciler.kube.status.writer import DesiredStatus, StatusWriter
from reconciler.memo import Memo
from reconciler.timestamps import timestamp

if TYPE_CHECKING:
    from reconciler.api.problem import Problem
    from reconciler.core.observation import Observation
    from reconciler.core.plan import Plan
    from reconciler.core.target import Outcome
    from reconciler.kube.client.api import ApiServer
    from reconciler.loop import PlannedRevision, Reporter
    from reconciler.loop.desired import Desired
    from reconciler.loop.interfaces import Following

Objects = Mapping[ObjectId, Manifest]

LONGEST_S = 0.3

_TOLD = frozenset(kind.name for kind in KIND_TABLE.values() if kind.has_status)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClusterStatusWriter:
    """Writes statuses and events to one cluster. `speeds` learns what each pass found there.

    After `longest_s` what a service says of how far it is is left to the next pass: when a thousand
    of them roll, each says it many times, and which of them serve would be known late."""

    api: ApiServer
    leads: Callable[[], bool]
    identity: str
    speeds: PodSpeeds | None = None
    longest_s: float = math.inf
    statuses: StatusWriter = field(init=False)
    events: EventWriter = field(init=False)
    is_behind: bool = field(init=False, default=False)  # something was left
    _said: Memo[ObjectRef, bool] = field(init=False, default_factory=Memo)  # it is there already
    _ready: Memo[ObjectRef, bool] = field(init=False, default_factory=Memo)  # as that said

    def __post_init__(self) -> None:
        self.statuses = StatusWriter(self.api)
        self.events = EventWriter(self.api, self.identity)

    def report(
        self, planned: PlannedRevision, outcomes: Sequence[Outcome], following: Following | None
    ) -> tuple[int, int]:
        """How many statuses and events were written; none for a cluster that gave no answer. Raises
        ClusterError."""
        desired, plan, cluster = planned.desired, planned.plan, self.api.name
        state = observed_clusters(planned.observed).get(f"cluster/{cluster}")
        if state is None or not self.leads():
            return 0, 0
        objects = state.documents
        if self.speeds is not None:
            workloads, slices = desired.assignment.workloads, ObjectSet.of(state.snapshot.slices)
            self.speeds.look(SpeedLook(workloads, objects, slices))
        view = ClusterView(
            cluster=cluster,
            desired=desired,
            plan=plan,
            instances=planned.observed.instances,
            objects=objects,
            pods=state.pods.troubled,
            leases=_leases(desired, cluster, state.nearby.heartbeats),
            failed=_failures(outcomes, cluster),
            generations=_generations(desired, cluster),
        )
        documents = _Documents(objects, self.statuses.current)
        fleets = self._fleets(view, following, state.snapshot.parent, documents)
        entries = chain(
            (_fleet_entry(of, live) for of, live in fleets), self.entries(view, documents)
        )
        told = chain.from_iterable(fleet_events(of, live) for of, live in fleets)
        happened = (*told, *happenings(plan, outcomes, cluster), *_contributed(plan, cluster))
        written = self.statuses.write(entries)
        return written, self.events.write(happened, documents)

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
        """What the documents should say, but for those that are as before, and said so then."""
        now = timestamp(time.time())
        until = time.monotonic() + self.longest_s
        order, self.is_behind = self._order(documents), False
        for memo in (self._said, self._ready):
            memo.keep(documents)
        for ref in order:
            grounds = view.grounds(ref)
            if ref.kind not in _TOLD or (grounds and self._said.get(ref, grounds)):
                continue
            if grounds and time.monotonic() > until and not self._turns(view, ref):
                self.is_behind = True
                continue
            live = documents[ref]
            if live["metadata"].get("deletionTimestamp"):
                continue
            if ref.kind == "InferenceService":
                entry = DesiredStatus(live, service_status(view, live, now), SERVICE_FIELDS)
                if grounds and entry.is_there:
                    self._said.put(ref, grounds, finding=True)
                    self._ready.put(ref, (), finding=view.is_ready(ref))
                yield entry
            elif ref.kind == "FleetNode" and "agent" in (live.get("spec") or {}):
                yield DesiredStatus(live, node_status(view, live, now), NODE_FIELDS)

    def _turns(self, view: ClusterView, ref: ObjectRef) -> bool:
        """Whether a service serves and its status does not say so, or the other way round."""
        return view.is_ready(ref) != bool(self._ready.get(ref, ()))

    def _order(self, documents: Iterable[ObjectRef]) -> Sequence[ObjectRef]:
        """From anywhere on while some are left each time: it is never the same ones that wait."""
        refs = tuple(documents)
        start = random.randrange(len(refs)) if refs and self.is_behind else 0  # noqa: S311
        return refs[start:] + refs[:start]


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


class StatusReporter:
    """The loop's Reporter. What it learns of a pass goes to every cluster once the pass is over.

    A process that is on standby everywhere says nothing of its plans to people either: another
    one carries them out, and says so."""

    def __init__(
        self,
        to: Reporter,
        writers: Sequence[ClusterStatusWriter],
        told: Callable[[int, int], None] = lambda statuses, events: None,
        led: Callable[[Desired], None] = lambda desired: None,
        *,
        speaks: bool = False,
    ) -> None:
        """`told` learns how many statuses and events were written; `led` of each pass that was made
        as the leader. `led` may raise a ReconcilerError."""
        self._to = to
        self._writers = tuple(writers)
        self._told = told
        self._led = led
        self._speaks = speaks
        self._why: dict[str, str] = {}
        self.following: Following | None = None  # as the source was read last

    @property
    def _leads(self) -> bool:
        return any(writer.leads() for writer in self._writers) or not self._writers

    @property
    def is_behind(self) -> bool:
        """Whether the last pass left statuses to the next one."""
        return any(writer.is_behind for writer in self._writers)

    def planned(self, plan: Plan, desired: Desired) -> None:
        if self._speaks or self._leads:
            self._to.planned(plan, desired)

    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None:
        if self._speaks or self._leads:
            self._to.applied(planned, outcomes)
        if not self._leads:
            return
        for writer in self._writers:
            self.guard(writer.api.name, partial(self._write, writer, planned, outcomes))
        self.guard("", lambda: self._led(planned.desired))

    def _write(
        self, writer: ClusterStatusWriter, planned: PlannedRevision, outcomes: Sequence[Outcome]
    ) -> None:
        self._told(*writer.report(planned, outcomes, self.following))

    def guard(self, name: str, step: Callable[[], None]) -> None:
        """What cannot be written now is written after the next pass; the failure is logged once."""
        try:
            step()
        except ReconcilerError as error:
            if self._why.get(name) != str(error):
                _log.warning("%s", error)
            self._why[name] = str(error)
        else:
            self._why.pop(name, None)

    # What goes through as it is.

    def looked(self, observed: Observation) -> None:
        self._to.looked(observed)

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self._to.refused(revision, problems)

    def held(self, why: str) -> None:
        self._to.held(why)

    def rewritten(self, how: str) -> None:
        self._to.rewritten(how)

    def source_lost(self, why: str, since: float) -> None:
        self._to.source_lost(why, since)

    def source_back(self) -> None:
        self._to.source_back()
