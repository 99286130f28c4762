"""This machine as a target: what its processes and its store look like, and how a change is made.

A change never waits: a model that is not here yet is sent for, and the change comes up again in the
pass after its download, when its memory is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from agent.byhand.asked import ByHand
from agent.engines.render import CommandRenderer, Rendered, hot_change
from agent.machine.memory import MachineMemory, ours_of
from agent.models.expected import beside, still_meant
from agent.node.admission import NodeAdmission
from agent.node.disk import ModelsDisk
from agent.node.drift import DriftWatch
from agent.node.handover import Handover
from agent.node.offer import target_state, wanted_models
from agent.node.view import with_gone_reason
from agent.node.waiting import WaitingServices
from agent.process.holders import stranger_on
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.owner import Processes
from agent.state.undone import Undone, with_undone
from reconciler.api.errors import ApplyError
from reconciler.api.meta import ObjectRef
from reconciler.core.moves import moving, place
from reconciler.core.observation import Location, Observation
from reconciler.core.plan import Action, Change, Restart
from reconciler.core.target import Outcome, Result
from reconciler.fleet.workload import Workload
from reconciler.placement.overrides import concerns

_BACK = "its model is here again"
_NEWS_S = 60.0  # a source may have been away for hours, and what was found is over


class ProcessTarget:
    """The target of one node: its processes, with models on their way to it."""

    def __init__(
        self,
        node: str,
        renderer: CommandRenderer,
        processes: Processes,
        clock: Callable[[], float],
        waiting: WaitingServices,
        by_hand: ByHand,
        memory: MachineMemory,
        disk: ModelsDisk,
        drift: DriftWatch,
        handover: Handover,
        admission: NodeAdmission,
        namespace: str | None = None,
    ) -> None:
        """`namespace`: services of others are not ours, and so is what runs of them here."""
        self._node = node
        self._renderer = renderer
        self._processes = processes
        self._clock = clock
        self._waiting = waiting
        self._by_hand = by_hand
        self._memory = memory
        self._disk = disk
        self._drift = drift
        self._handover = handover
        self._admission = admission
        self.undone: tuple[Undone, ...] = ()  # by the last pass, of what was not blocked
        self._namespace = namespace
        # services without a process when this life of the agent began, which are started again:
        # the first plan says so, with these words
        self.gone_at_start: Mapping[ObjectRef, str] = {}
        self._begun_at = clock()

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """Processes, and services that wait for a model."""
        workloads = tuple(workloads)
        processes = self._processes.snapshot()
        seen = self._memory.read(ours_of(processes))
        own = {i.launch.port for i in processes if i.pid is not None}
        disk = self._disk.read(wanted_models(self._node, workloads))
        state = target_state(
            self._node, self._renderer, workloads, self._clock(), own, seen.pools, disk
        )
        self._admission.follow(workloads, state.obstacles)
        is_news = self._clock() - self._begun_at < _NEWS_S
        gone, self.gone_at_start = self.gone_at_start if is_news else {}, {}
        live = {
            i.ref: replace(
                with_gone_reason(i.to_instance(state.target), gone),
                measured=seen.measured_of(i.pid),
                drifts=self._drift.of(i),
            )
            for i in processes
            if not i.stopping and concerns(i.ref, self._namespace)
        }
        state = replace(
            state,
            leaving=leaving_of(processes),
            successors=self._handover.successors(moving(state.target, live.values(), workloads)),
        )
        for ref in self._waiting.compare(workloads, live):
            live[ref] = replace(live[ref], gone=True, reason="ModelGone", message=_BACK)
        meant = still_meant(self._waiting.instances(), workloads, self._node)
        shown, waiting = beside(live.values(), meant)
        shown = with_undone(shown, self.undone)
        instances = sorted((*shown, *waiting), key=lambda i: i.ref)
        state = self._by_hand.shown(state, workloads, instances)
        return Observation({state.target: state}, tuple(instances))

    def apply(self, change: Change) -> Outcome:
        """Start, replace, note or stop. Raises ApplyError, EngineError, StateError, for this change
        only."""
        match change.action:
            case Action.CREATE | Action.REPLACE | Action.DRIFT:
                return self._run(change)
            case Action.UPDATE if change.impact.restart is Restart.HOT:
                return self._run(change)
            case Action.UPDATE:
                return self._update(change)
            case Action.MOVE if change.awaits:
                home = place(change.home or "")
                message = f"stays until it is ready on {home}: {change.awaits}"
                return Outcome(change, Result.SKIPPED, message)
            case Action.DELETE | Action.STOP | Action.MOVE:
                self._waiting.forget(change.ref)
                self._processes.stop(change.ref)
                return Outcome(change, Result.APPLIED, "stopping")
            case Action.UNKNOWN | Action.DEFERRED:
                return Outcome(change, Result.SKIPPED)
            case _:
                assert_never(change.action)

    def _run(self, change: Change) -> Outcome:
        workload = change.desired
        assert workload is not None
        rendered = self._renderer.render(workload, keep_port=True)
        if rendered is None:
            return self._waiting.send_for(change, workload)
        if change.reason == "ProcessGone":  # begun by who took over what was recorded
            return Outcome(change, Result.APPLIED, "starts again")
        if workload.is_uncounted:
            why = "starts once the header of its model is read, which moeCPULayers: auto follows"
            return Outcome(change, Result.SKIPPED, why)
        self._check_port(workload, rendered.port)
        if change.impact.waits:
            others = ", ".join(ref.label for ref in change.impact.after)
            why = f"waits until {others}, whose model has to come first, has left its port"
            return Outcome(change, Result.SKIPPED, why)
        self._check_room(change.ref)
        self._waiting.forget(change.ref)
        launch = _launch(workload, rendered, change.source)
        known = {state.ref: state.successor for state in self._processes.snapshot()}
        comes = known.get(change.ref)
        self._start(change, launch)
        if comes is not None and launch.same_process(comes):  # said in an earlier pass
            return Outcome(change, Result.SKIPPED, "starts once its predecessor has drained")
        hot = change.impact.restart is Restart.HOT
        return Outcome(change, Result.APPLIED, "reloads" if hot else "starts")

    def _start(self, change: Change, launch: Launch) -> None:
        """Run it. What runs already as it should is restarted where the change asks for that."""
        running = {state.ref: state.launch for state in self._processes.snapshot()}.get(change.ref)
        again = change.action is Action.DRIFT or change.reason == "RestartedByHand"
        if change.reason == "Drifted":
            self._drift.restarting(change.ref)
        self._by_hand.restarted(change.ref)
        if again and running is not None and launch.same_process(running):
            self._processes.update(launch)
            self._processes.restart(change.ref)
        elif change.impact.restart is Restart.HOT and running is not None:
            self._processes.reload(*hot_change(self._renderer, running, launch))
        else:
            self._processes.run(launch)

    def _check_port(self, workload: Workload, new: int) -> None:
        """ApplyError where a service would leave its port for one that it cannot get: a program
        may have taken it since the plan was made. What is ours leaves it by the plan."""
        ports = {state.ref: state.launch.port for state in self._processes.snapshot()}
        now = ports.pop(workload.ref, None)
        if now is None or new == now or new in ports.values():
            return
        if stranger := stranger_on(self._renderer.state, workload.listen.host, new):
            raise ApplyError(
                workload.ref, f"PortInUse: {stranger.message}; left as it is on port {now}"
            )

    def _check_room(self, ref: ObjectRef) -> None:
        """ApplyError where a service would be stopped for a successor that cannot be recorded."""
        runs = any(
            state.ref == ref and state.pid is not None for state in self._processes.snapshot()
        )
        if runs and (why := self._processes.why_unwritable()):
            raise ApplyError(ref, f"StateUnwritable: {why}; left as it is")

    def _update(self, change: Change) -> Outcome:
        assert change.desired is not None
        rendered = self._renderer.render(change.desired, keep_port=True)
        if rendered is None:
            return self._waiting.send_for(change, change.desired)
        launch = _launch(change.desired, rendered, change.source)
        self._processes.update(launch)
        return Outcome(change, Result.APPLIED, "noted, without a restart")


def leaving_of(processes: Iterable[ProcessSnapshot]) -> dict[ObjectRef, str]:
    """Return the services that are not to run here any more and whose process lives, in words."""
    ending = [state for state in processes if state.stopping and state.pid]
    waits = {state.ref: f", {state.message}" if state.message else "" for state in ending}
    return {state.ref: f"still ending: pid {state.pid}{waits[state.ref]}" for state in ending}


def _launch(workload: Workload, rendered: Rendered, cause: Location | None) -> Launch:
    # The line of the object, not of the field that changed: a later removal cites it.
    source = Location(workload.origin.path, workload.origin.line, cause.commit if cause else None)
    return Launch(
        ref=workload.ref,
        command=rendered.command,
        inputs=workload.inputs,
        inputs_digest=workload.inputs_digest,
        render_digest=rendered.digest,
        runtime=workload.runtime,
        port=rendered.port,
        source=source,
        needs=workload.needs,
        models=tuple(model.name for model in workload.models),
        drain_timeout_s=workload.drain_timeout_s,
        host=workload.listen.host,
    )
