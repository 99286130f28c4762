"""This machine as a target: what its processes and its store look like, and how a change is made.

A change never waits: a model that is not here yet is sent for, and the change comes up again in the
pass after its download, when its memory is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import assert_never

from agent.byhand.asked import ByHand
from agent.engines.render import CommandRenderer, Rendered, hot_change
from agent.machine.memory import MachineMemory, ours_of
from agent.models.expected import ExpectedFile, beside, still_meant
from agent.models.header_gate import HeaderGate
from agent.node.disk import ModelsDisk
from agent.node.drift import DriftWatch
from agent.node.handover import Handover
from agent.node.offer import target_state, wanted_models
from agent.node.view import with_gone_reason
from agent.process.holders import stranger_on
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.owner import Processes
from agent.state.undone import Undone, with_undone
from reconciler.api.errors import ApplyError
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Location, Observation
from reconciler.core.plan import Action, Change, Plan, Restart
from reconciler.core.target import Outcome, Result
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.models.scheme import FetchContext
from reconciler.models.url import shown
from reconciler.placement.overrides import concerns

_ON_ITS_WAY = "Downloading"
_BACK = "its model is here again"
_NEWS_S = 60.0  # a source may have been away for hours, and what was found is over


@dataclass(frozen=True, slots=True)
class _Expected:
    """A service that waits for a model, since when. `failure`: of the download before the one that
    is under way, which is said again only when it is another one. `begun`: its models may come;
    before, their headers are read."""

    workload: Workload
    source: Location | None
    since: float
    failure: str
    begun: bool


class ProcessTarget:
    """The target of one node: its processes, with models on their way to it."""

    def __init__(
        self,
        node: str,
        renderer: CommandRenderer,
        processes: Processes,
        clock: Callable[[], float],
        expected_file: ExpectedFile,
        by_hand: ByHand,
        memory: MachineMemory,
        disk: ModelsDisk,
        drift: DriftWatch,
        handover: Handover,
        namespace: str | None = None,
        headers: HeaderGate | None = None,
    ) -> None:
        """`namespace`: services of others are not ours, and so is what runs of them here.
        `headers` are read before models are fetched."""
        self._node = node
        self._renderer = renderer
        self._processes = processes
        self._context = FetchContext()  # of the revision that is applied now
        self._clock = clock
        self._expected: dict[ObjectRef, _Expected] = {}
        self._by_hand = by_hand
        self._memory = memory
        self._disk = disk
        self._drift = drift
        self._handover = handover
        self.undone: tuple[Undone, ...] = ()  # by the last pass, of what was not blocked
        self._namespace = namespace
        self._headers = headers
        # services without a process when this life of the agent began, which are started again:
        # the first plan says so, with these words
        self.gone_at_start: Mapping[ObjectRef, str] = {}
        self._begun_at = clock()
        self._expected_file = expected_file  # for commands that read this node's files

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
            state, leaving={i.ref: ending(i) for i in processes if i.stopping and i.pid}
        )
        self._handover.stays({w.ref for w in workloads if w.node == self._node}, live)
        for workload in workloads:
            if self._is_back(workload, live.get(workload.ref)):
                live[workload.ref] = replace(
                    live[workload.ref], gone=True, reason="ModelGone", message=_BACK
                )
        self._drop_refused({w.ref for w in workloads if w.node == self._node})
        self._ask_again()
        meant = still_meant(self._wait_for_models(), workloads, self._node)
        shown, waiting = beside(live.values(), meant)
        shown = with_undone(shown, self.undone)
        instances = sorted((*shown, *waiting), key=lambda i: i.ref)
        state = self._by_hand.shown(state, workloads, instances)
        return Observation({state.target: state}, tuple(instances))

    def save(self) -> None:
        """Write again which services wait for their models."""
        self._expected_file.save()

    def follow(self, context: FetchContext) -> None:
        """How the models of the revision that is applied now are fetched."""
        self._context = context

    def admit(self, plan: Plan) -> None:
        """Before a plan is applied: what it has no room for is not fetched, and what else is
        expected may begin. What has arrived of it stays until another needs its room."""
        for item in plan.blocked:
            if item.reason == "DiskFull":
                self._forget(item.ref)
        self._begin()

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
            case Action.MOVE if change.reason != "MovedAtOnce" and (
                why := self._handover.holds(change)
            ):
                return Outcome(change, Result.SKIPPED, why)
            case Action.DELETE | Action.STOP | Action.MOVE:
                self._handover.over(change.ref)
                self._forget(change.ref)
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
            return self._send_for_models(change, workload)
        if change.reason == "ProcessGone":  # begun by who took over what was recorded
            return Outcome(change, Result.APPLIED, "starts again")
        self._check_port(workload, rendered.port)
        if change.impact.waits:
            others = ", ".join(ref.label for ref in change.impact.after)
            why = f"waits until {others}, whose model has to come first, has left its port"
            return Outcome(change, Result.SKIPPED, why)
        self._check_room(change.ref)
        self._forget(change.ref)
        launch = _launch(workload, rendered, change.source)
        known = {state.ref: state.successor for state in self._processes.snapshot()}
        comes = known.get(change.ref)
        self._start(change, launch)
        if comes is not None and launch.same_process(comes):  # said in an earlier pass
            return Outcome(change, Result.SKIPPED, "starts once its predecessor has drained")
        hot = change.impact.restart is Restart.HOT
        return Outcome(change, Result.APPLIED, "reloads" if hot else "starts")

    def _send_for_models(self, change: Change, workload: Workload) -> Outcome:
        """Where a process still runs, this comes up in each pass, and nothing else says how the
        download is: everybody is shown the process."""
        known = self._expected.get(change.ref)
        if known is not None and known.workload.inputs_digest != workload.inputs_digest:
            known = None
        since, failure = (known.since, known.failure) if known else (self._clock(), "")
        begun = known is not None and known.begun
        expected = _Expected(workload, change.source, since, failure, begun)
        self._expected[change.ref] = expected
        self._drop_downloads()
        self._begin()
        why = next((w for w in self._wait_for_models() if w.ref == change.ref), None)
        if why and why.reason != _ON_ITS_WAY:
            failure = f": {why.reason}: {why.message}"
            now = self._expected[change.ref]
            self._expected[change.ref] = replace(now, failure=failure)
        result = Result.SKIPPED if known else Result.APPLIED
        return Outcome(change, result, f"waits for its model{failure}")

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

    def _begin(self) -> None:
        """Let come what a plan with all that is known of it has room for."""
        for ref, expected in self._expected.items():
            if not expected.begun and self._may_begin(expected.workload):
                self._expected[ref] = replace(expected, begun=True)
        self._ask_again()

    def _ask_again(self) -> None:
        """Want every model that may come: one whose download failed is tried again after its
        pause."""
        for expected in self._expected.values():
            for model in expected.workload.model_files if expected.begun else ():
                self._renderer.store.ensure(model, self._context)

    def _may_begin(self, workload: Workload) -> bool:
        return self._headers is None or self._headers.may_come(self._absent(workload))

    def _is_back(self, workload: Workload, running: Instance | None) -> bool:
        """What a service expects, against what it is to be now. True: the model of one that has no
        process has come again, so that it can start."""
        expected = self._expected.get(workload.ref)
        is_same = running is not None and running.inputs_digest == workload.inputs_digest
        if expected is None or expected.workload.inputs_digest != workload.inputs_digest:
            if is_same:
                self._forget(workload.ref)  # a change that was taken back before its model came
            return False
        self._expected[workload.ref] = replace(expected, workload=workload)  # its sizes
        if running is None or not is_same or self._absent(workload):
            return False
        if running.pid is not None:
            self._forget(workload.ref)
        return running.pid is None

    def _absent(self, workload: Workload) -> list[ModelFile]:
        return [m for m in workload.model_files if self._renderer.store.lookup(m) is None]

    def _drop_refused(self, meant: Set[ObjectRef]) -> None:
        """Nothing was fetched of what their headers have made known to be too large."""
        for ref in [r for r, e in self._expected.items() if not e.begun and r not in meant]:
            self._forget(ref)

    def _wait_for_models(self) -> tuple[Instance, ...]:
        """The services that wait, as they are now; others may read the same from a file."""
        instances = (self._waiting(e.workload, e.source, e.since) for e in self._expected.values())
        waiting = tuple(instance for instance in instances if instance is not None)
        self._expected_file.write(waiting)
        return waiting

    def _forget(self, ref: ObjectRef) -> None:
        if self._expected.pop(ref, None) is not None:
            self._drop_downloads()
            self._wait_for_models()

    def _drop_downloads(self) -> None:
        """Drop downloads of models that are no longer expected: each holds one of few slots."""
        models = [m for each in self._expected.values() for m in each.workload.model_files]
        self._renderer.store.keep_only(models)

    def _update(self, change: Change) -> Outcome:
        assert change.desired is not None
        rendered = self._renderer.render(change.desired, keep_port=True)
        if rendered is None:
            return self._send_for_models(change, change.desired)
        launch = _launch(change.desired, rendered, change.source)
        self._processes.update(launch)
        return Outcome(change, Result.APPLIED, "noted, without a restart")

    def _waiting(
        self, workload: Workload, source: Location | None, since: float
    ) -> Instance | None:
        """A service whose model is on its way; None once all its models are here."""
        absent = self._absent(workload)
        if not absent:
            return None
        downloads = (self._renderer.store.download_of(model) for model in absent)
        failed = next((d for d in downloads if d and d.reason), None)
        return Instance(
            ref=workload.ref,
            target=f"node/{self._node}",
            runtime=workload.runtime,
            inputs=workload.inputs,
            inputs_digest=workload.inputs_digest,
            render_digest=None,
            source=source,
            ready=False,
            reason=failed.reason if failed else _ON_ITS_WAY,
            message=failed.message if failed else ", ".join(shown(m.source) for m in absent),
            since=since,
            needs=workload.needs,
            models=tuple(m.name for m in workload.models),
        )


def ending(state: ProcessSnapshot) -> str:
    """What is to be said of a process that is not wanted any more."""
    waits = f", {state.message}" if state.message else ""
    return f"still ending: pid {state.pid}{waits}"


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
