"""What a cluster is told after each pass: statuses on the fleet's documents, and events.

A Reporter of the loop, around another one. Only who leads tells a cluster anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from reconciler.api.meta import GROUP, ObjectRef
from reconciler.errors import ReconcilerError
from reconciler.kube.known import Known
from reconciler.kube.objects import Manifest, ObjectId, ref_of
from reconciler.kube.publishing.heartbeat import LeaseState
from reconciler.kube.publishing.heartbeats import Beat
from reconciler.kube.publishing.node_slices import published_nodes
from reconciler.kube.reading.source import ClusterCheckout
from reconciler.kube.telling.asking import Pods
from reconciler.kube.telling.events import EventWriter, happenings
from reconciler.kube.telling.status import NODE_FIELDS, SERVICE_FIELDS, node_status, service_status
from reconciler.kube.telling.statuswriter import Entry, StatusWriter
from reconciler.kube.telling.view import View
from reconciler.target import Result

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.kube.apiserver.client import ApiServer
    from reconciler.loop import Reporter
    from reconciler.plan import Observation, Plan
    from reconciler.problem import Problem
    from reconciler.target import Outcome

Objects = Mapping[ObjectId, Manifest]

_TOLD = frozenset({"FleetNode", "InferenceService"})  # documents with a status of ours
_log = logging.getLogger(__name__)


class Looked(Protocol):
    """One cluster as the last pass saw it."""

    api: ApiServer

    def objects_or_none(self) -> Objects | None:
        """The fleet's live objects, its documents among them; None: not known."""

    def pods_found(self) -> Pods:
        """Those of services that were not ready."""

    def beats(self) -> Mapping[str, Beat]:
        """The heartbeats of the agents beside it."""


@dataclass(slots=True)
class Voice:
    """What speaks to one cluster."""

    looked: Looked
    leads: Callable[[], bool]
    identity: str
    statuses: StatusWriter = field(init=False)
    events: EventWriter = field(init=False)
    _said: Known[ObjectRef, bool] = field(init=False, default_factory=Known)  # it is there already

    def __post_init__(self) -> None:
        self.statuses = StatusWriter(self.looked.api)
        self.events = EventWriter(self.looked.api, self.identity)

    def tell(
        self, desired: Desired, plan: Plan, observed: Observation, outcomes: Sequence[Outcome]
    ) -> tuple[int, int]:
        """How many statuses and events were written. Raises ClusterError."""
        objects, cluster = self.looked.objects_or_none(), self.looked.api.name
        if objects is None or not self.leads():
            return 0, 0
        view = View(
            cluster=cluster,
            desired=desired,
            plan=plan,
            instances=observed.instances,
            objects=objects,
            pods=self.looked.pods_found(),
            leases=self._leases(desired),
            failed=_failures(outcomes, cluster),
            generations=_generations(desired, cluster),
        )
        documents = _Documents(objects, self.statuses.current)
        written = self.statuses.write(self._entries(view, documents))
        happened = happenings(plan, outcomes, cluster)
        return written, self.events.write(happened, documents)

    def _entries(self, view: View, documents: Mapping[ObjectRef, Manifest]) -> Iterator[Entry]:
        """But for those that are as before, and said so then."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._said.keep(documents)
        for ref in documents:
            grounds = view.grounds(ref)
            if ref.kind not in _TOLD or (grounds and self._said.get(ref, grounds)):
                continue
            live = documents[ref]
            if live["metadata"].get("deletionTimestamp"):
                continue
            if ref.kind == "InferenceService":
                entry = Entry(live, service_status(view, live, now), SERVICE_FIELDS)
                if grounds and entry.is_there:
                    self._said.put(ref, grounds, finding=True)
                yield entry
            elif "agent" in (live.get("spec") or {}):
                yield Entry(live, node_status(view, live, now), NODE_FIELDS)

    def _leases(self, desired: Desired) -> Mapping[str, LeaseState]:
        """How the heartbeats of the agents stand that this cluster hears of."""
        nodes = published_nodes(desired, self.looked.api.name)
        states = {node: beat.state for node, beat in self.looked.beats().items() if node in nodes}
        return {node: state for node, state in states.items() if state is not LeaseState.NONE}


class _Documents(Mapping[ObjectRef, Manifest]):
    """The fleet's own documents as they are now, each made when it is looked at."""

    def __init__(self, objects: Objects, current: Callable[[Manifest], Manifest]) -> None:
        self._objects, self._current = objects, current
        self._ids = {ref_of(oid): oid for oid in objects if oid.group == GROUP}

    def __getitem__(self, ref: ObjectRef) -> Manifest:
        return self._current(self._objects[self._ids[ref]])

    def __iter__(self) -> Iterator[ObjectRef]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def _failures(outcomes: Iterable[Outcome], cluster: str) -> Mapping[ObjectRef, str]:
    failed = (o for o in outcomes if o.result is Result.FAILED)
    return {o.change.ref: o.message for o in failed if o.change.target == f"cluster/{cluster}"}


def _generations(desired: Desired, cluster: str) -> Mapping[ObjectRef, int] | None:
    """Where the revision was made of this cluster's objects, theirs."""
    checkout = desired.checkout
    here = isinstance(checkout, ClusterCheckout) and checkout.cluster == cluster
    return checkout.generations if here and isinstance(checkout, ClusterCheckout) else None


class Telling:
    """The loop's Reporter. What it is told of a pass goes to every cluster once the pass is over.

    Who stands by everywhere says nothing of its plans to people either: another one carries them
    out, and says so."""

    def __init__(
        self,
        to: Reporter,
        voices: Sequence[Voice],
        told: Callable[[int, int], None] = lambda statuses, events: None,
        led: Callable[[Desired], None] = lambda desired: None,
        *,
        speaks: bool = False,
    ) -> None:
        """`told` learns how many statuses and events were written; `led` of each pass that was made
        as the leader. `led` may raise a ReconcilerError."""
        self._to = to
        self._voices = tuple(voices)
        self._told = told
        self._led = led
        self._speaks = speaks
        self._pass: tuple[Plan, Desired] | None = None
        self._observed: Observation | None = None
        self._why: dict[str, str] = {}

    @property
    def _leads(self) -> bool:
        return any(voice.leads() for voice in self._voices) or not self._voices

    def planned(self, plan: Plan, desired: Desired) -> None:
        self._pass = (plan, desired)
        if self._speaks or self._leads:
            self._to.planned(plan, desired)

    def applied(self, outcomes: tuple[Outcome, ...]) -> None:
        if self._speaks or self._leads:
            self._to.applied(outcomes)
        if not self._leads:
            return
        assert self._pass is not None
        assert self._observed is not None
        plan, desired = self._pass
        for voice in self._voices:
            self._tell(voice, desired, plan, self._observed, outcomes)
        self._guard("", lambda: self._led(desired))

    def _tell(
        self,
        voice: Voice,
        desired: Desired,
        plan: Plan,
        observed: Observation,
        outcomes: Sequence[Outcome],
    ) -> None:
        def tell() -> None:
            self._told(*voice.tell(desired, plan, observed, outcomes))

        self._guard(voice.looked.api.name, tell)

    def _guard(self, name: str, step: Callable[[], None]) -> None:
        """What cannot be told now is told after the next pass; it is said once."""
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
        self._observed = observed
        self._to.looked(observed)

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self._to.refused(revision, problems)

    def held(self, why: str) -> None:
        self._to.held(why)

    def source_lost(self, why: str, since: float) -> None:
        self._to.source_lost(why, since)

    def source_back(self) -> None:
        self._to.source_back()
