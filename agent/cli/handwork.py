"""Stop and restart services from a command: by the running agent, or in its place.

The process that holds the lock of the state directory does the work. An agent is asked by a file
and a SIGHUP; without one, or when it ends meanwhile, the command takes the lock and does the work
from the records.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from agent.byhand import requests
from agent.byhand.stopped import Stopped, read_launches, read_stopped
from agent.models.expected import read_expected
from agent.node.local import LocalAgent
from agent.node.settings import Settings
from agent.process.admission import starts_nothing
from agent.process.launch import Launch
from agent.process.owner import Processes
from agent.process.rebuilt import workload_of
from agent.process.records import ProcessRecord, Records
from agent.server.here import instances_here
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance
from reconciler.core.plan import Action, Change
from reconciler.fleet.workload import Workload

_BESIDE_DRAINING_S = 30.0
_LOOK_EVERY_S = 0.1
_ENDED_MEANWHILE = "its process ended while no agent ran: the next agent starts it again"


@dataclass(frozen=True, slots=True)
class Here:
    """What a person can name: services with a record, that wait for a model, or were stopped."""

    records: Mapping[ObjectRef, ProcessRecord]
    waiting: frozenset[ObjectRef]
    stopped: Mapping[ObjectRef, str]
    launches: Mapping[ObjectRef, Launch]  # what those that were stopped were started from

    @classmethod
    def read(cls, state: StateDir) -> Here:
        return cls(
            {record.launch.ref: record for record in Records(state).read_all()},
            frozenset(instance.ref for instance in read_expected(state, "node/here")),
            read_stopped(state),
            read_launches(state),
        )

    @property
    def names(self) -> frozenset[ObjectRef]:
        return self.running | self.stopped.keys()

    @property
    def running(self) -> frozenset[ObjectRef]:
        """There, or on the way; what drains is still there."""
        return self.waiting | self.records.keys()

    def longest_s(self, refs: Iterable[ObjectRef]) -> float:
        """How long an end may take: the slowest drain, and what comes after it."""
        drains = (self.records[ref].launch.drain_timeout_s for ref in refs if ref in self.records)
        return max(drains, default=0.0) + _BESIDE_DRAINING_S


def stop(state: StateDir, refs: Collection[ObjectRef], *, keep: bool = True) -> set[ObjectRef]:
    """Drain and stop; `keep` notes that they stay so. Returns who is not stopped in time.

    Raises StateError.
    """
    deadline_s = Here.read(state).longest_s(refs)

    def left() -> set[ObjectRef]:
        return set(refs) & Here.read(state).running

    def in_place() -> None:
        state.lock()
        records = Here.read(state).records
        if keep:
            digests = {r: records[r].launch.inputs_digest for r in refs if r in records}
            Stopped(state).add(digests, {r: records[r].launch for r in digests})
        processes = Processes(state, starts_nothing(_ENDED_MEANWHILE))
        processes.start(revive=False)
        for ref in refs:
            processes.stop(ref)
        processes.wait_for(lambda states: not set(refs) & {s.ref for s in states}, deadline_s)
        processes.close(stop_children=False)
        state.unlock()

    _carry_out(state, requests.STOP, refs, left, in_place, deadline_s)
    return left()


def restart(
    state: StateDir,
    refs: Collection[ObjectRef],
    node: str,
    settings: Settings,
    ready_s: float,
    saw: Callable[[Instance], None] = lambda _: None,
) -> set[ObjectRef]:
    """Start what was stopped and restart the others, rendered as this machine would now. Returns
    what is not ready in time; `ready_s` is how long a start may take. `saw` is given each of them
    whenever it is looked at.

    Without an agent, what never had a process is only released, and what has a process, but no
    model on the disk, is left to the next agent. Raises StateError, EngineError and ApplyError.
    """
    here = Here.read(state)
    before = {ref: r.child.identity.pid for ref, r in here.records.items() if r.child}
    deadline_s = here.longest_s(refs) + ready_s
    awaited = set(refs)

    def left(owner: Processes | None = None) -> set[ObjectRef]:
        if owner is None:
            instances = list(instances_here(state, node))
        else:
            instances = [seen.to_instance(f"node/{node}") for seen in owner.snapshot()]
        for instance in instances:
            if instance.ref in awaited:
                saw(instance)
        return awaited - {i.ref for i in instances if i.ready and i.pid != before.get(i.ref)}

    def in_place() -> None:
        records = {ref: record.launch for ref, record in here.records.items()}
        launches = {**here.launches, **records}
        awaited.intersection_update(launches)  # no agent is here to start the others
        agent = LocalAgent(node, settings, changed=lambda: None, keeps_expected=True)
        agent.start(revive=False)
        try:
            agent.by_hand.release(refs)
            for ref in sorted(awaited):
                workload = workload_of(launches[ref], node)
                is_here = all(agent.store.lookup(model) for model in workload.model_files)
                if ref in records and not is_here:
                    agent.by_hand.later(ref, before.get(ref))
                    awaited.discard(ref)
                elif ref in records:
                    _start_anew(agent, workload)
                elif is_here:
                    _apply(agent, workload, Action.CREATE)
                else:
                    awaited.discard(ref)  # nor to fetch its model
            _wait(lambda: not left(agent.processes), deadline_s)
        finally:
            agent.close(stop_children=False)

    _carry_out(state, requests.RESTART, refs, left, in_place, deadline_s)
    return left()


def _start_anew(agent: LocalAgent, workload: Workload) -> None:
    observed = agent.target.observe([workload])
    if workload.ref not in {instance.ref for instance in observed.instances}:
        return  # it ended while no agent ran: the next one notices
    _apply(agent, workload, Action.REPLACE)


def _apply(agent: LocalAgent, workload: Workload, action: Action) -> None:
    agent.target.apply(
        Change(action, workload.target, workload.ref, "RestartedByHand", None, desired=workload)
    )


def _carry_out(
    state: StateDir,
    action: str,
    refs: Collection[ObjectRef],
    left: Callable[[], set[ObjectRef]],
    in_place: Callable[[], None],
    deadline_s: float,
) -> None:
    """Have the owner do it, or be the owner; returns when nothing is left, or at the deadline."""
    # One more command that looks for an owner must not end this one while it is the owner.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if state.holder() is None:
        in_place()
        return
    request = requests.ask(state, action, refs)
    woken = 0
    until = time.monotonic() + deadline_s
    try:
        while time.monotonic() < until:
            holder = state.holder()
            if holder is None:
                request.withdraw()
                in_place()
                return
            if holder != woken and not request.taken:
                requests.wake(holder)
                woken = holder
            if request.taken and not left():
                return
            time.sleep(_LOOK_EVERY_S)
    finally:
        request.withdraw()


def _wait(condition: Callable[[], bool], deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while not condition() and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
