"""A node as its records show it, without touching anything: for --dry-run, status and stop.

Works beside a running agent and without one. Nothing here locks, starts, stops or allocates.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.byhand.stopped import read_stopped, read_stopped_since
from agent.engines.render import CommandRenderer
from agent.machine.memory import MachineMemory
from agent.models.expected import beside_owned, read_noted, still_meant
from agent.node.disk import ModelsDisk
from agent.node.handover import Handover, moves_file
from agent.node.offer import target_state, wanted_models
from agent.process import health, logs
from agent.process.drain_text import describe_wait
from agent.process.identity import is_ours
from agent.process.launch import Child, Launch
from agent.process.model_state import failures, mark_quarantined, with_reasons
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from agent.state.drift_file import Known, drift_file, read_drifts
from agent.state.undone import read_undone, with_undone
from reconciler.api.errors import ReconcilerError
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.core.moves import moving
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Change
from reconciler.core.target import Outcome
from reconciler.fleet.command import Command, ServedModel
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.memory import ModelFacts
from reconciler.runtimes import RUNTIMES

_UNSEEN = "its process ended while no agent ran to start it again"
_ENDED = "its process ended"


class RecordedNode:
    """An Observer of one node, as a Target whose `apply` refuses: a dry run cannot change it."""

    def __init__(
        self,
        node: str,
        state: StateDir,
        renderer: CommandRenderer,
        memory: MachineMemory,
        disk: ModelsDisk,
    ) -> None:
        """`memory`, `disk` and `handover` follow what their caller knows that the fleet states."""
        self._node = node
        self.memory = memory
        self.disk = disk
        self.handover = Handover(moves_file(state))
        self._state = state
        self._renderer = renderer

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> Mapping[ObjectRef, ModelFacts]:
        """What the node's store knows of models that were downloaded."""
        return self._renderer.facts(fleet, models)

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """What the records say, checked against the living processes."""
        workloads = tuple(workloads)
        started = _recorded(self._state, f"node/{self._node}")
        seen = self.memory.read({i.pid: i.needs for i in started if i.pid is not None})
        state = target_state(
            self._node,
            self._renderer,
            workloads,
            time.time(),
            _ports_in_use(self._state),
            seen.pools,
            self.disk.read(wanted_models(self._node, workloads)),
        )
        leaving = recorded_leaving(self._state)
        state = replace(
            state,
            stopped=read_stopped(self._state),
            stopped_since=read_stopped_since(self._state),
            leaving=leaving,
            successors=self.handover.noted(moving(state.target, started, workloads)),
            state_option=self._state.option,
        )
        started = tuple(replace(i, measured=seen.measured_of(i.pid)) for i in started)
        meant = still_meant(read_noted(self._state, state.target), workloads, self._node)
        shown = beside_owned(self._state, started, meant)
        shown = with_undone(shown, (u for u in read_undone(self._state) if not u.is_blocked))
        return Observation({state.target: state}, shown)

    def command(self, workload: Workload, workloads: Iterable[Workload]) -> Command | None:
        """How one of these workloads is, or would be, started here; None while something is
        missing."""
        mine = (w for w in workloads if w.node == self._node and not w.suspended)
        self._renderer.ports.follow({w.ref: w.port for w in mine})
        try:
            rendered = self._renderer.render(workload, keep_port=False)
        except ReconcilerError:
            return None
        return rendered.command if rendered else None

    def apply(self, change: Change) -> Outcome:
        raise AssertionError(f"a dry run applies nothing, not even {change.ref}")


def recorded_instances(state: StateDir, node: str) -> tuple[Instance, ...]:
    """Every service that this node's records want running, or that its owner downloads a model
    for, and how it is."""
    target = f"node/{node}"
    return beside_owned(state, _recorded(state, target), read_noted(state, target))


def read_gone(state: StateDir) -> dict[ObjectRef, str]:
    """Every service that should run and has no process, with what is to be said of it."""
    return {
        record.launch.ref: _gone_message(record)
        for record in Records(state).read_all()
        if record.wanted and not _lives(record)
    }


def with_gone_reason(instance: Instance, gone: Mapping[ObjectRef, str]) -> Instance:
    """The instance as it was before the new owner of the node began to start it again."""
    message = gone.get(instance.ref)
    if message is None or instance.adopted:  # found by its marker after all
        return instance
    return replace(
        instance,
        ready=False,
        gone=True,
        pid=None,
        endpoint=None,
        reason="ProcessGone",
        message=message,
    )


def recorded_leaving(state: StateDir) -> dict[ObjectRef, str]:
    """Every service that is not wanted here any more and whose process lives, with what it waits
    for."""
    is_owned = state.holder() is not None
    return {
        record.launch.ref: _ending(record.launch, record.child, is_owned=is_owned)
        for record in Records(state).read_all()
        if not record.wanted and record.child is not None and is_ours(record.child)
    }


def _ports_in_use(state: StateDir) -> frozenset[int]:
    """The ports of processes that live, also of those that are to go."""
    records = Records(state).read_all()
    return frozenset(r.launch.port for r in records if r.child is not None and is_ours(r.child))


def _ending(launch: Launch, child: Child, *, is_owned: bool) -> str:
    counts = launch.command.probe.counts_requests
    busy = health.requests_in_flight(launch) if counts else None
    waits = "" if busy is None else f", {describe_wait(busy)}" if busy else ", no request in flight"
    longest = f", for {launch.drain_timeout_s:g} s at most" if busy else ""
    nobody = f"; nobody ends it now: `fleet-agent stop {launch.ref.label}` does"
    return f"still ending: pid {child.identity.pid}{waits}" + (longest if is_owned else nobody)


def _recorded(state: StateDir, target: str) -> tuple[Instance, ...]:
    drifts, is_owned = read_drifts(drift_file(state)), state.holder() is not None
    return tuple(
        _drifted(_instance(state, record, target, is_owned=is_owned), drifts)
        for record in Records(state).read_all()
        if record.wanted
    )


def _drifted(instance: Instance, drifts: Known) -> Instance:
    """Add the drift that its owner saw last in this very process."""
    pid, known = drifts.get(instance.ref.label, (None, ()))
    return replace(instance, drifts=known) if pid is not None and pid == instance.pid else instance


def _served(
    state: StateDir, record: ProcessRecord, child: Child, served: tuple[ServedModel, ...]
) -> tuple[ServedModel, ...]:
    """Each model with the reason for which it failed, or is left out."""
    row = RUNTIMES.get(record.launch.runtime)
    if row is None or row.many is None:
        return served
    log = logs.tail_of_run(state.log_file(record.launch.ref), child.marker)
    models = with_reasons(served, failures(row.many, log))
    return mark_quarantined(models, record.quarantined)


def _lives(record: ProcessRecord) -> bool:
    return record.child is not None and is_ours(record.child)


def _gone_message(record: ProcessRecord) -> str:
    """What the record says of a process was true while it lived, and so long ago."""
    if record.child is not None or not record.message:
        return _UNSEEN
    return f"{_UNSEEN}; the last time: {record.reason}: {record.message}"


def _instance(state: StateDir, record: ProcessRecord, target: str, *, is_owned: bool) -> Instance:
    launch, child = record.launch, record.child
    instance = Instance(
        ref=launch.ref,
        target=target,
        runtime=launch.runtime,
        inputs=launch.inputs,
        inputs_digest=launch.inputs_digest,
        render_digest=launch.render_digest,
        source=launch.source,
        ready=False,
        reason=record.reason or "Stopped",
        message=record.message,
        since=record.ready_since or (child.spawned_at if child else None),
        port=launch.port,
        needs=launch.needs,
        models=launch.models,
        start_seconds=record.start_seconds,
    )
    if child is None and is_owned:  # its owner starts it again
        message = record.message or _ENDED
        return replace(instance, reason=record.reason or "ProcessGone", message=message)
    if child is None or not is_ours(child):
        message = _ENDED if is_owned else _gone_message(record)
        return replace(instance, gone=not is_owned, reason="ProcessGone", message=message)
    pid = child.identity.pid
    recognise = health.recogniser(launch.runtime, launch.models)
    verdict = health.check(
        pid,
        launch.host,
        launch.port,
        launch.command.probe,
        recognise,
        was_ready=record.was_ready,
        key=health.key_of(launch),
    )
    verdict = health.with_sleep(launch, verdict)
    return replace(
        instance,
        pid=pid,
        ready=verdict.ready,
        served=_served(state, record, child, verdict.served),
        reason=verdict.reason,
        message=verdict.message,
        endpoint=launch.url if verdict.ready else None,
    )
