"""A node as its records show it, without touching anything: for --dry-run, status and stop.

Works beside a running agent and without one. Nothing here locks, starts, stops or allocates.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from agent.byhand.stopped import read_stopped
from agent.drift_file import Known, drift_file, read_drifts
from agent.engines.render import Renderer
from agent.machine.memory import NodeMemory
from agent.models.expected import read_expected, still_meant
from agent.offer import target_state
from agent.process import health, logs, many
from agent.process.identity import is_ours
from agent.process.launch import Child
from agent.process.quarantine import mark_quarantined
from agent.process.records import Record, Records
from agent.state import StateDir
from reconciler.api.model import Model
from reconciler.errors import ReconcilerError
from reconciler.memory import ModelFacts
from reconciler.plan import Change, Instance, Observation
from reconciler.runtimes import RUNTIMES
from reconciler.target import Outcome
from reconciler.workload import Command, ServedModel, Workload


class RecordedNode:
    """An Observer of one node, as a Target whose `apply` refuses: a dry run cannot change it."""

    def __init__(self, node: str, state: StateDir, renderer: Renderer, memory: NodeMemory) -> None:
        """`memory` is told by whoever knows the fleet what that states of this machine."""
        self._node = node
        self.memory = memory
        self._state = state
        self._renderer = renderer

    def facts(self, model: Model) -> ModelFacts | None:
        """What the node's store knows of a model that was downloaded."""
        return self._renderer.facts(model)

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """What the records say, checked against the living processes."""
        workloads = tuple(workloads)
        started = _recorded(self._state, f"node/{self._node}")
        seen = self.memory.look({i.pid: i.needs for i in started if i.pid is not None})
        state = target_state(self._node, self._renderer, workloads, time.time(), seen.pools)
        state = replace(state, stopped=read_stopped(self._state))
        started = tuple(replace(i, measured=seen.measured_of(i.pid)) for i in started)
        waiting = still_meant(_waiting(self._state, state.target, started), workloads, self._node)
        return Observation({state.target: state}, (*started, *waiting))

    def command(self, workload: Workload) -> Command | None:
        """How the workload is, or would be, started here; None while something is missing."""
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
    started = _recorded(state, target)
    return (*started, *_waiting(state, target, started))


def _recorded(state: StateDir, target: str) -> tuple[Instance, ...]:
    if not state.records.is_dir():
        return ()
    drifts = read_drifts(drift_file(state))
    return tuple(
        _drifted(_instance(state, record, target), drifts)
        for record in Records(state).read_all()
        if record.wanted
    )


def _drifted(found: Instance, drifts: Known) -> Instance:
    """With what its owner saw last of this very process."""
    pid, known = drifts.get(found.ref.label, (None, ()))
    return replace(found, drifts=known) if pid is not None and pid == found.pid else found


def _waiting(state: StateDir, target: str, started: Iterable[Instance]) -> tuple[Instance, ...]:
    """A service with a process keeps showing that one until it is replaced."""
    refs = {instance.ref for instance in started}
    return tuple(i for i in read_expected(state, target) if i.ref not in refs)


def _served(
    state: StateDir, record: Record, child: Child, served: tuple[ServedModel, ...]
) -> tuple[ServedModel, ...]:
    """Each model with the reason for which it failed, or is left out."""
    row = RUNTIMES.get(record.launch.runtime)
    if row is None or row.many is None:
        return served
    log = logs.tail_of_run(state.log_file(record.launch.ref), child.marker)
    failed = many.failures(row.many, log)
    return mark_quarantined(many.explained(served, failed), record.quarantined)


def _instance(state: StateDir, record: Record, target: str) -> Instance:
    launch, child = record.launch, record.child
    found = Instance(
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
        since=child.spawned_at if child else None,
        port=launch.port,
        needs=launch.needs,
        models=launch.models,
        start_seconds=record.start_seconds,
    )
    if child is None or not is_ours(child):
        message = record.message or "its process ended and nobody watches it"
        return replace(found, gone=True, reason=record.reason or "ProcessGone", message=message)
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
    return replace(
        found,
        pid=pid,
        ready=verdict.ready,
        served=_served(state, record, child, verdict.served),
        reason=verdict.reason,
        message=verdict.message,
        endpoint=launch.url if verdict.ready else None,
    )
