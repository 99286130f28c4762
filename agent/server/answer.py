"""The responses about this node, made from memory: a request touches no process, disk or
network."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.node.target import leaving_of
from reconciler import __version__
from reconciler.api import nodestate as wire
from reconciler.core.observation import Observation, TargetState
from reconciler.loop.interfaces import defect_of
from reconciler.report.instancestate import ref_state
from reconciler.report.nodestate import node_state
from reconciler.source.address import redact_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.models.downloads import Download
    from agent.node.node import Node
    from agent.process.launch import ProcessSnapshot
    from agent.server.board import StateBoard
    from agent.server.sampler import Sampler
    from reconciler.api.meta import ObjectRef
    from reconciler.core.observation import Instance
    from reconciler.core.plan import Blocked
    from reconciler.fleet.command import Command

_SERVICE = "InferenceService"
_SLOWEST_PASS_S = 120.0
_SLOWEST_FETCH_S = 3600.0  # git may wait half an hour for its lock, and half an hour for a clone


@dataclass(frozen=True, slots=True)
class Body:
    """A document as JSON, and an ETag that changes with its content."""

    state: wire.NodeState
    json: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class NotReady:
    """A service that should be ready here and is not."""

    service: str
    reason: str
    message: str = ""


class Answers:
    """The state of this node for HTTP. Used by one thread."""

    def __init__(self, node: Node, board: StateBoard, sampler: Sampler) -> None:
        self._node = node
        self._board = board
        self._sampler = sampler
        self._kept: tuple[tuple[object, ...], Body] | None = None
        # Before the first revision nothing is compared; services of an earlier run are running
        # anyway.
        unseen = TargetState(self.target, reachable=True, seen_at=time.time())
        self._nothing = Observation({self.target: unseen}, ())

    def state(self) -> Body:
        """NodeState as JSON."""
        board, agent = self._board, self._node.agent
        observed = board.observed or self._nothing
        seen = agent.processes.snapshot()
        downloads = tuple(_download(d) for d in agent.store.downloads())
        inputs = (
            *(observed, board.plan, seen, self._sampler.shown),
            *(downloads, self._node.loop.revisions.state(), self.is_alive()),
        )
        if self._kept is None or not _same(self._kept[0], inputs):
            self._kept = (inputs, self._body(observed, seen, downloads))
        return self._kept[1]

    def observed(self) -> Observation:
        """This node now."""
        return replace(self._board.observed or self._nothing, instances=self.instances())

    def instances(self) -> tuple[Instance, ...]:
        """Services that should run here, with their current state."""
        observed = self._board.observed or self._nothing
        return live(observed, self._node.agent.processes.snapshot(), self.target)

    def command(self, ref: ObjectRef) -> Command | None:
        """What a service's process was started with; None: it has none here."""
        running = self._node.agent.processes.snapshot()
        return next((state.launch.command for state in running if state.ref == ref), None)

    @property
    def target(self) -> str:
        return f"node/{self._node.name}"

    def is_alive(self) -> bool:
        """Whether the loop made a pass lately. A fetch may take longer than anything else."""
        limit_s = _SLOWEST_FETCH_S if self._node.loop.revisions.fetching else _SLOWEST_PASS_S
        return self._board.since_pass_s() <= limit_s

    def not_ready(self) -> tuple[NotReady, ...]:
        """Every service that should be ready here and is not, after a defect that keeps this agent
        from its work."""
        revisions = self._node.loop.revisions
        defect = defect_of(revisions.verdict, revisions.failures)
        reasons = (NotReady(self.target, "InternalError", defect),) if defect else ()
        return (*reasons, *self._late())

    def _late(self) -> tuple[NotReady, ...]:
        wanted, observed, plan = self._board.wanted, self._board.observed, self._board.plan
        if wanted is None or observed is None or plan is None:
            why = self._node.loop.revisions.state().held or "no revision was read yet"
            return (NotReady(self.target, "NoRevision", why),)
        stopped = observed.targets[self.target].stopped
        own_blocked = [b for b in plan.blocked if b.target in (None, self.target)]
        blocked = {ref: b for b in own_blocked for ref in (b.ref, *b.holds)}
        should = {w.ref for w in wanted if w.node == self._node.name and not w.suspended}
        # Those that never became a workload: what is blocked on a target did, or is not declared.
        should |= {ref for ref, b in blocked.items() if b.target is None and ref.kind == _SERVICE}
        there = {instance.ref: instance for instance in self.instances()}
        return tuple(
            _why(ref, there.get(ref), blocked.get(ref))
            for ref in sorted(should - set(stopped))
            if not (ref in there and there[ref].ready)
        )

    def blocked(self) -> tuple[NotReady, ...]:
        """Every service that answers here and that the last plan leaves as it is."""
        observed, plan = self._board.observed, self._board.plan
        if observed is None or plan is None:
            return ()
        ready = {instance.ref for instance in self.instances() if instance.ready}
        own = (b for b in plan.blocked if b.target == self.target and b.ref in ready)
        return tuple(NotReady(b.ref.label, b.reason, b.message) for b in own)

    def _body(
        self,
        observed: Observation,
        seen: tuple[ProcessSnapshot, ...],
        downloads: tuple[wire.DownloadState, ...],
    ) -> Body:
        state = observed.targets[self.target]
        plan, shown = self._board.plan, self._sampler.shown
        revision = self._node.loop.revisions.state()
        now = replace(state, leaving=leaving_of(seen))  # a stop may have begun after the last pass
        answer = node_state(
            replace(now, seen_at=state.seen_at or 0.0, revision=revision),
            live(observed, seen, self.target),
            agent_version=__version__,
            fleet=redact_url(self._node.loop.revisions.source.location),
            blocked=[
                wire.BlockedState(
                    ref=ref_state(b.ref),
                    reason=b.reason,
                    message=b.message,
                    holds=tuple(ref_state(ref) for ref in b.holds if ref != b.ref),
                )
                for b in (plan.blocked if plan else ())
                if b.target in (None, self.target)
            ],
            suspended=[
                w.ref for w in self._board.wanted or () if w.suspended and w.node == self._node.name
            ],
            downloads=downloads,
            models=shown.stored,
            pressure=shown.pressure,
            benchmarks=shown.benchmarks,
            speeds=shown.speeds,
            requests=shown.requests,
            overrides=self._node.overrides(),
        )
        # Another pass without changes is not news, so a poller need not read it again, except if
        # the agent has stopped making passes.
        still = answer.model_copy(update={"observed_at": 0.0}) if self.is_alive() else answer
        tag = hashlib.sha256(_json(still)).hexdigest()[:32]
        return Body(answer, _json(answer), f'W/"{tag}"')


def live(
    observed: Observation, seen: Iterable[ProcessSnapshot], target: str
) -> tuple[Instance, ...]:
    """The loop's observation, updated by the process owner: the loop may be in the middle of a long
    fetch while a service dies or becomes ready."""
    before = {i.ref: i for i in observed.instances}
    now = {s.ref: s.to_instance(target) for s in seen if not s.stopping}
    waiting = [i for ref, i in before.items() if ref not in now and i.pid is None]
    return (*(_renewed(before.get(ref), i) for ref, i in now.items()), *waiting)


def _renewed(before: Instance | None, now: Instance) -> Instance:
    """Only the loop compares and measures a process: its findings stay valid for that process."""
    if before is None or before.pid != now.pid:
        return now
    return replace(
        now,
        drifts=before.drifts,
        measured=before.measured,
        gone=before.gone,
        pending=before.pending,
    )


def _why(ref: ObjectRef, instance: Instance | None, blocked: Blocked | None) -> NotReady:
    if instance is not None:
        return NotReady(ref.label, instance.reason, instance.message)
    if blocked is not None:
        return NotReady(ref.label, blocked.reason, blocked.message)
    return NotReady(ref.label, "Starting", "not started yet")


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """The large parts are replaced as a whole, so they can be compared by identity."""
    return all(a is b for a, b in zip(one[:4], other[:4], strict=True)) and one[4:] == other[4:]


def _json(state: wire.NodeState) -> bytes:
    return state.model_dump_json(by_alias=True, exclude_none=True).encode()


def _download(download: Download) -> wire.DownloadState:
    return wire.DownloadState(
        model=download.model,
        source=redact_url(download.source),
        state=download.state,
        received_bytes=download.received_bytes,
        total_bytes=download.total_bytes,
        reason=download.reason or None,
        message=download.message or None,
    )
