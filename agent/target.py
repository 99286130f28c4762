"""This machine as a target: what its processes and its store look like, and how a change is made.

A change never waits: a model that is not here yet is sent for, and the change comes up again in the
pass after its download, when its memory is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from agent.byhand.asked import ByHand
from agent.drift import DriftWatch
from agent.engines.render import Rendered, Renderer, hot_change
from agent.handover import Handover
from agent.machine.memory import NodeMemory, ours_of
from agent.models.expected import ExpectedFile, still_meant
from agent.offer import target_state
from agent.overlay import is_ours
from agent.process.launch import Launch
from agent.process.owner import Processes
from agent.process.ports import not_local, taken_by
from reconciler.api.meta import ObjectRef
from reconciler.errors import ApplyError
from reconciler.models.scheme import FetchContext
from reconciler.plan import Action, Change, Instance, Observation, Restart, Source
from reconciler.target import Outcome, Result
from reconciler.workload import Workload

_ON_ITS_WAY = "Downloading"


@dataclass(frozen=True, slots=True)
class _Expected:
    """A service that waits for a model, since when. `failure`: of the download before the one that
    is under way, which is said again only when it is another one."""

    workload: Workload
    source: Source | None
    since: float
    failure: str


class ProcessTarget:
    """The target of one node: its processes, with models on their way to it."""

    def __init__(
        self,
        node: str,
        renderer: Renderer,
        processes: Processes,
        clock: Callable[[], float],
        expected_file: ExpectedFile,
        by_hand: ByHand,
        memory: NodeMemory,
        drift: DriftWatch,
        handover: Handover,
        namespace: str | None = None,
    ) -> None:
        """`namespace`: services of others are not ours, and so is what runs of them here."""
        self._node = node
        self._renderer = renderer
        self._processes = processes
        self.context = FetchContext()  # of the revision that is applied now; the loop sets it
        self._clock = clock
        self._expected: dict[ObjectRef, _Expected] = {}
        self._by_hand = by_hand
        self._memory = memory
        self._drift = drift
        self._handover = handover
        self._namespace = namespace
        self._expected_file = expected_file  # for whoever looks at this node from outside

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        """Processes, and services that wait for a model."""
        workloads = tuple(workloads)
        processes = self._processes.snapshot()
        seen = self._memory.look(ours_of(processes))
        state = target_state(self._node, self._renderer, workloads, self._clock(), seen.pools)
        live = {
            i.ref: replace(
                i.to_instance(state.target),
                measured=seen.measured_of(i.pid),
                drifts=self._drift.of(i),
            )
            for i in processes
            if not i.stopping and is_ours(i.ref, self._namespace)
        }
        self._handover.stays({w.ref for w in workloads if w.node == self._node}, live)
        for workload in workloads:
            running = live.get(workload.ref)
            if running and running.inputs_digest == workload.inputs_digest:
                self._forget(workload.ref)  # a change that was taken back before its model came
        self._ask_again()
        waiting = [i for i in self._wait_for_models() if i.ref not in live]
        meant = still_meant(waiting, workloads, self._node)
        instances = sorted((*live.values(), *meant), key=lambda i: i.ref)
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
            case Action.MOVE if change.reason != "MovedAtOnce" and (
                why := self._handover.holds(change)
            ):
                return Outcome(change, Result.SKIPPED, why)
            case Action.DELETE | Action.MOVE:
                self._handover.over(change.ref)
                self._forget(change.ref)
                self._processes.stop(change.ref)
                return Outcome(change, Result.APPLIED, "drains and stops")
            case Action.UNKNOWN | Action.DEFERRED:
                return Outcome(change, Result.SKIPPED)
            case _:
                assert_never(change.action)

    def _run(self, change: Change) -> Outcome:
        workload = change.desired
        assert workload is not None
        self._check_port(workload)
        rendered = self._renderer.render(workload, keep_port=True)
        if rendered is None:
            return self._send_for_models(change, workload)
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
        expected = _Expected(workload, change.source, since, failure)
        self._expected[change.ref] = expected
        self._drop_downloads()
        self._ask_again()
        why = next((w for w in self._wait_for_models() if w.ref == change.ref), None)
        if why and why.reason != _ON_ITS_WAY:
            failure = f": {why.reason}: {why.message}"
            self._expected[change.ref] = replace(expected, failure=failure)
        result = Result.SKIPPED if known else Result.APPLIED
        return Outcome(change, result, f"waits for its model{failure}")

    def _start(self, change: Change, launch: Launch) -> None:
        """Run it. What runs already as it should is started anew where the change asks for that."""
        running = {state.ref: state.launch for state in self._processes.snapshot()}.get(change.ref)
        anew = change.action is Action.DRIFT or change.reason == "RestartedByHand"
        if change.reason == "Drifted":
            self._drift.restarting(change.ref)
        if anew and running is not None and launch.same_process(running):
            self._processes.update(launch)
            self._processes.restart(change.ref)
        elif change.impact.restart is Restart.HOT and running is not None:
            self._processes.reload(*hot_change(self._renderer, running, launch))
        else:
            self._processes.run(launch)

    def _check_port(self, workload: Workload) -> None:
        """ApplyError where a service would leave its address or port for one that it cannot get."""
        ports = {state.ref: state.launch.port for state in self._processes.snapshot()}
        now = ports.pop(workload.ref, None)
        new = self._renderer.ports.port_for(workload.ref, workload.port, keep=False)
        if now is not None and (why := not_local(workload.listen.host)):
            raise ApplyError(workload.ref, f"HostIPNotLocal: {why}; left as it is")
        if now is None or new == now:
            return
        owner = next((ref.label for ref, port in ports.items() if port == new), None)
        taken = f"port {new} is {owner}'s" if owner else taken_by(workload.listen.host, new)
        if taken:
            remedy = f"left as it is on port {now}; state another endpoint.port, or free that one"
            raise ApplyError(workload.ref, f"{taken}: {remedy}")

    def _ask_again(self) -> None:
        """Want every expected model: one whose download failed is tried again after its pause."""
        for expected in self._expected.values():
            for model in expected.workload.models:
                self._renderer.store.ensure(model, self.context)

    def _wait_for_models(self) -> tuple[Instance, ...]:
        """The services that wait, as they are now; others may read the same from a file."""
        found = (self._waiting(e.workload, e.source, e.since) for e in self._expected.values())
        waiting = tuple(instance for instance in found if instance is not None)
        self._expected_file.write(waiting)
        return waiting

    def _forget(self, ref: ObjectRef) -> None:
        if self._expected.pop(ref, None) is not None:
            self._drop_downloads()
            self._wait_for_models()

    def _drop_downloads(self) -> None:
        """Of models that nobody expects any more: each holds one of few slots."""
        models = [m for each in self._expected.values() for m in each.workload.models]
        self._renderer.store.keep_only(models)

    def _update(self, change: Change) -> Outcome:
        assert change.desired is not None
        rendered = self._renderer.render(change.desired, keep_port=True)
        if rendered is None:
            return Outcome(change, Result.SKIPPED, "its model is gone from the store")
        launch = _launch(change.desired, rendered, change.source)
        self._processes.update(launch)
        return Outcome(change, Result.APPLIED, "noted, without a restart")

    def _waiting(self, workload: Workload, source: Source | None, since: float) -> Instance | None:
        """A service whose model is on its way; None once all its models are here."""
        absent = [m for m in workload.models if self._renderer.store.lookup(m) is None]
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
            message=failed.message if failed else ", ".join(m.source for m in absent),
            since=since,
            needs=workload.needs,
            models=tuple(m.name for m in workload.models),
        )


def _launch(workload: Workload, rendered: Rendered, cause: Source | None) -> Launch:
    # The line of the object, not of the field that changed: a later removal cites it.
    source = Source(workload.origin.path, workload.origin.line, cause.commit if cause else None)
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
