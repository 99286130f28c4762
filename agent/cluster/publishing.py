"""A thread that publishes in a cluster what this node serves: endpoints at once, status soon after.

An endpoint is withdrawn as soon as its process begins to drain, and removed with the service.
Nothing here can block the loop or a model: services keep running while the API server is gone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.cluster.endpoints import OUTAGES, Endpoints
from agent.cluster.outage import Outage, Pauses
from agent.cluster.status import (
    ServiceTrouble,
    instance_entry,
    is_news,
    is_node_news,
    node_observed,
    node_status,
    trouble_entry,
)
from agent.process.ports import not_local
from agent.server.answer import live
from reconciler import __version__
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import GROUP, ObjectRef
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Plan
from reconciler.kube.client.errors import ClusterError, NotFound
from reconciler.kube.endpoints.slices import Unpublished, service_manifest, slice_id, slice_of
from reconciler.kube.instance_entry import instances_status
from reconciler.kube.objects import AGENT_MANAGER, Manifest, ObjectId, id_of
from reconciler.worker import Worker

if TYPE_CHECKING:
    from agent.cluster.following import Objects
    from agent.node.node import Node
    from agent.server.board import StateBoard
    from reconciler.kube.client.api import ApiServer

_LOOK_S = 1.0  # an exit is noticed this late at most
_IDLE_S = 10.0  # a round without changes here: others may have changed the objects
_STATUS_EVERY_S = 3.0
_STATUS_ANEW_S = 60.0
_SERVICE = "InferenceService"
_log = logging.getLogger(__name__)


class Publisher:
    """Publishes one node in one cluster. `seen` returns the cluster's objects from the mirror; with
    `services` the Services are this agent's as well, because there is no reconciler."""

    def __init__(
        self,
        api: ApiServer,
        node: Node,
        board: StateBoard,
        seen: Callable[[], Objects | None],
        outage: Outage,
        *,
        manager: str,
        services: bool = False,
        withdraws: bool = False,
    ) -> None:
        """`withdraws`: services stop when this process ends, so their endpoints go first."""
        self._api, self._node, self._board, self._seen = api, node, board, seen
        self._outage, self._manager = outage, manager
        self._services, self._withdraws = services, withdraws
        self._endpoints = Endpoints(api, node.name, manager, node.settings.namespace)
        self._target = f"node/{node.name}"
        self._written: dict[ObjectRef, dict[str, Any]] = {}
        self._written_at: dict[ObjectRef, float] = {}
        self._observed: dict[str, Any] | None = None
        self._status_at = self._anew_at = 0.0
        self._refusals: dict[ObjectRef, str] = {}
        self._pauses = Pauses()
        self._worker = Worker(
            *("publisher", self._publish), every_s=_IDLE_S, what="round of publishing", end_s=5.0
        )

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._worker.close()
        if self._withdraws:
            try:
                self._endpoints.sync({}, {} if self._services else None)
            except ClusterError as error:
                _log.warning("endpoints are not withdrawn: %s", error)

    def _publish(self) -> float:
        """Publish, and wait until there is something to publish again."""
        seen = self._node.agent.processes.snapshot()
        try:
            waits_s = self._round()
        # Denied, too: a server that has just started may not have its roles yet
        except ClusterError as error:
            self._outage.failed(error)
            return max(self._pauses.next_s(), getattr(error, "retry_after_s", 0.0))
        self._outage.answered()
        self._pauses.reset()
        self._wait(seen, waits_s)
        return 0.0

    def _wait(self, before: tuple[object, ...], most_s: float) -> None:
        """Wait for the next change of a process, for a pass with another plan, or for this long."""
        ends, plan = time.monotonic() + most_s, self._board.plan
        while not self._worker.is_ending and (left := ends - time.monotonic()) > 0:
            processes = self._node.agent.processes
            if processes.wait_for(lambda now: now is not before, min(left, _LOOK_S)):
                return
            if self._is_other(plan):
                return

    def _is_other(self, plan: Plan | None) -> bool:
        """Whether the last pass found something to publish: another revision, or a hold."""
        now = self._board.plan
        if plan is None or now is None:
            return now is not plan
        return (now.revision, now.blocked) != (plan.revision, plan.blocked)

    def _round(self) -> float:
        """Returns the seconds until the next round at the latest."""
        instances = self._instances()
        slices, unpublished = self._slices(instances)
        self._endpoints.sync(slices, self._names(slices) if self._services else None)
        now = time.monotonic()
        due_in = self._status_at + _STATUS_EVERY_S - now
        if due_in > 0:
            return due_in
        if now - self._anew_at > _STATUS_ANEW_S:
            self._written.clear()
            self._observed, self._anew_at = None, now
        if self._write_statuses(instances) + self._write_node(unpublished):
            self._status_at = time.monotonic()
        return _IDLE_S

    def _instances(self) -> tuple[Instance, ...]:
        """What runs here now, and what is stopping."""
        observed = self._board.observed or Observation(
            {self._target: TargetState(self._target, reachable=True)}, ()
        )
        states = self._node.agent.processes.snapshot()
        ending = [s.to_instance(self._target) for s in states if s.stopping]
        return (*live(observed, states, self._target), *(replace(i, ready=False) for i in ending))

    def _slices(
        self, instances: tuple[Instance, ...]
    ) -> tuple[dict[ObjectId, Manifest], dict[ObjectRef, Unpublished]]:
        slices: dict[ObjectId, Manifest] = {}
        unpublished: dict[ObjectRef, Unpublished] = {}
        if not self._is_published():
            return slices, unpublished
        foreign: dict[str, str | None] = {}  # address -> why it is not this machine's
        for instance in instances:
            made = slice_of(instance, AGENT_MANAGER)
            if isinstance(made, Unpublished):
                if made.reason != "NoPort":
                    unpublished[instance.ref] = made
                continue
            host = made["endpoints"][0]["addresses"][0]
            if host not in foreign:
                foreign[host] = not_local(host)
            if why := foreign[host]:
                unpublished[instance.ref] = Unpublished("HostIPNotLocal", why)
            else:
                slices[slice_id(instance.ref, self._node.name)] = made
        return slices, unpublished

    def _is_published(self) -> bool:
        """Whether the node's services are published in a cluster at all. Unknown before a revision
        is read: what was published stays."""
        desired, ref = self._node.loop.desired, ObjectRef("FleetNode", "", self._node.name)
        declared = desired.fleet.get(FleetNode, ref) if desired else None
        agent = declared.spec.agent if declared else None
        return self._services or agent is None or bool(agent.clusters)

    def _names(self, slices: Mapping[ObjectId, Manifest]) -> dict[ObjectId, Manifest]:
        """The Services of everything with a slice, as long as it is declared."""
        desired, named = self._node.loop.desired, {}
        declared = desired.fleet.all(InferenceService) if desired else ()
        for service in declared:
            if slice_id(service.ref, self._node.name) in slices:
                manifest = service_manifest(service, AGENT_MANAGER)
                named[id_of(manifest)] = manifest
        return named

    def _write_statuses(self, instances: tuple[Instance, ...]) -> int:
        """Returns how many were written."""
        revision = self._node.loop.revisions.state().applied
        troubles = {t.ref: t for t in reversed(self._troubles())}  # the first of each counts
        name = self._node.name
        wanted = {ref: trouble_entry(trouble, name) for ref, trouble in troubles.items()}
        speeds = self._board.speeds
        wanted |= {
            i.ref: instance_entry(i, name, revision, troubles.get(i.ref), speeds.get(i.ref))
            for i in instances
        }
        seen = self._seen() or {}
        entries = {ref: live for ref in seen_refs(seen) if (live := self._live_entry(seen, ref))}
        written, now = 0, time.monotonic()
        for ref, entry in wanted.items():
            before = self._written.get(ref) or entries.get(ref)
            since_s = now - self._written_at.get(ref, -math.inf)
            if _oid(ref) in seen and is_news(before, entry, since_s):
                written += self._apply(ref, instances_status(ref, [entry]))
                self._written[ref], self._written_at[ref] = entry, now
        for ref in {*entries, *self._written} - wanted.keys():
            if self._written.get(ref) != {} and _oid(ref) in seen:
                written += self._apply(ref, instances_status(ref, []))
            self._written[ref] = {}
        self._written = {r: e for r, e in self._written.items() if _oid(r) in seen}
        self._written_at = {r: at for r, at in self._written_at.items() if _oid(r) in seen}
        return written

    def _troubles(self) -> tuple[ServiceTrouble, ...]:
        """Services that are held here and have no process."""
        plan = self._board.plan
        blocked = plan.blocked if plan else ()
        return tuple(
            ServiceTrouble(ref, item.reason, item.message)
            for item in blocked
            if item.target in (None, self._target)
            for ref in dict.fromkeys((item.ref, *item.holds))
            if ref.kind == _SERVICE
        )

    def _live_entry(self, seen: Objects, ref: ObjectRef) -> dict[str, Any] | None:
        status = seen[_oid(ref)].get("status") or {}
        entries = status.get("instances") or ()
        return next((dict(e) for e in entries if e.get("node") == self._node.name), None)

    def _write_node(self, unpublished: Mapping[ObjectRef, Unpublished]) -> int:
        observed, node_id = self._board.observed, ObjectId(GROUP, "FleetNode", "", self._node.name)
        seen = self._seen() or {}
        if node_id not in seen:
            return 0
        state = observed.targets[self._target] if observed else None
        now = node_observed(
            state,
            self._node.loop.revisions.state(),
            agent_version=__version__,
            host_ip=self._node.settings.host_ip,
            unpublished=unpublished,
            overrides=self._node.overrides().model_dump(by_alias=True, exclude_none=True),
        )
        before = self._observed or (seen[node_id].get("status") or {}).get("observed")
        if not is_node_news(before, now):
            return 0
        self._observed = now
        return self._apply(
            ObjectRef("FleetNode", "", self._node.name), node_status(self._node.name, now)
        )

    def _apply(self, ref: ObjectRef, manifest: Manifest) -> int:
        """Write one status; a refusal is logged once. Raises what OUTAGES lists."""
        try:
            self._api.apply(manifest, manager=self._manager, force=True, subresource="status")
        except OUTAGES:
            raise
        except NotFound:
            return 1  # it was deleted meanwhile
        except ClusterError as error:
            if self._refusals.get(ref) != str(error):
                self._refusals[ref] = str(error)
                _log.warning("%s", error)
        return 1


def seen_refs(seen: Objects) -> tuple[ObjectRef, ...]:
    return tuple(ObjectRef(o.kind, o.namespace, o.name) for o in seen if o.kind == _SERVICE)


def _oid(ref: ObjectRef) -> ObjectId:
    return ObjectId(GROUP, ref.kind, ref.namespace, ref.name)
