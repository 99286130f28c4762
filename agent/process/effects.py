"""Carry out the effects of the state machines. Used by the owner thread only; helper threads pass
the results of probes to `answer`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from agent.process import events, health, logs, many, model_state
from agent.process.admission import Beside, LeftOut, StartAdmission, first_obstacle
from agent.process.adoption import Adoption
from agent.process.cputime import processor_seconds
from agent.process.events import Effect, Event
from agent.process.exits import classify
from agent.process.identity import boot_id, identity_of, variable_of
from agent.process.launch import Child, Launch
from agent.process.pidwatch import PidWatch, kill_leftovers
from agent.process.records import ProcessRecord, Records
from agent.process.spawn import spawn, write_files
from agent.process.unit import Unit
from agent.state.apikey import keep_copy
from agent.state.directory import StateDir
from agent.state.room import rotate
from agent.system.clock import Clock
from reconciler.api.errors import EngineError, ReconcilerError, StateError, error_text
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Obstacle
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.many import ManyModels

_PROBERS = 8  # hung services hold one each, for at most the answer timeout
_SHORT_S = 0.5  # after a question that had its time
_log = logging.getLogger(__name__)


class Effects:
    """Processes, records and probes of one state directory.

    `answer` takes a probe result from any thread; `note` takes one line for the notices;
    `admission` decides about each start; `beside` returns the other services of a launch.
    `adoption` knows processes of earlier runs again.
    """

    def __init__(
        self,
        state: StateDir,
        clock: Clock,
        environ: Mapping[str, str],
        watch: PidWatch,
        answer: Callable[[ObjectRef, Event], None],
        note: Callable[[ObjectRef, str], None],
        admission: StartAdmission,
        beside: Callable[[Launch], Beside],
    ) -> None:
        self._state = state
        self._clock = clock
        self._environ = environ
        self._watch = watch
        self._answer = answer
        self._note = note
        self._admission = admission
        self._beside = beside
        self._records = Records(state)
        self.adoption = Adoption(state, clock, watch)
        self._probers = ThreadPoolExecutor(_PROBERS, thread_name_prefix="probe")
        self._rotating = threading.Lock()  # against the owner and a probe of the same service
        self._own_pids: set[int] = set()  # our children, which we reap for their exit status
        self._oom_kills = _oom_kills()

    def perform(self, ref: ObjectRef, unit: Unit | None, effect: Effect) -> Event | None:
        """Carry out one effect; `unit` is the state after the step. Returns the event that follows
        at once: for Spawn always, for Rewrite if it fails."""
        match effect:
            case events.Spawn(launch, without):
                assert unit is not None
                return self._spawn(unit, launch, without)
            case events.Signal(child, number):
                self._watch.signal(child, number)
            case events.AskReady():
                self._probers.submit(self._ask_ready, ref, effect)
            case events.AskSlots():
                self._probers.submit(self._ask_slots, ref, effect)
            case events.Rewrite():
                return self._rewrite(ref, effect)
            case events.Save():
                assert unit is not None
                self.save(unit)
            case events.Forget():
                self.forget(ref)
            case events.Note(text):
                self._note(ref, text)
        return None

    def save(self, unit: Unit) -> None:
        try:
            self._records.write(_record(unit, unit.child.marker if unit.child else None))
        except OSError as error:
            # the intent written before the spawn still finds the process if we crash
            label = unit.launch.ref.label
            _log.error("%s: its record cannot be written: %s", label, error.strerror)

    def restore_key(self, unit: Unit) -> None:
        """The API key was on the disk alone, and in the processes that were started with it:
        clients go on with that one."""
        place, child = unit.launch.command.key, unit.child
        key = child and place and variable_of(child.identity.pid, place.variable)
        if not key or not place:
            return
        try:
            self._state.workload_dir(unit.launch.ref).mkdir(mode=0o700, exist_ok=True)
            keep_copy(Path(place.file), key)
            if not self._state.api_key.exists():
                keep_copy(self._state.api_key, key)
        except OSError as error:
            _log.warning("%s: cannot be written: %s", place.file, error_text(error))

    def why_unwritable(self) -> str | None:
        return self._state.why_unwritable()

    def load(self) -> tuple[ProcessRecord, ...]:
        return self._records.load()

    def set_damaged_aside(self) -> bool:
        return self._records.set_damaged_aside()

    def forget(self, ref: ObjectRef) -> None:
        try:
            self._records.remove(ref)
        except OSError as error:
            _log.error(
                "%s: its record cannot be removed, and would start it once more with the next"
                " fleet-agent: %s",
                ref.label,
                error.strerror,
            )

    def kill(self, child: Child) -> None:
        self._watch.signal(child, signal.SIGKILL)

    def collect_exit(self, ref: ObjectRef, child: Child) -> events.Exited | None:
        """Reap a watched process that has ended, find out why, and kill what it left behind.

        None if it has not ended after all.
        """
        pid, status = child.identity.pid, None
        if pid in self._own_pids:
            reaped, raw = os.waitpid(pid, os.WNOHANG)
            if reaped == 0:
                return None
            status = os.waitstatus_to_exitcode(raw)
            self._own_pids.discard(pid)
        self._watch.remove(pid)
        return self.post_mortem(ref, child, status)

    def post_mortem(self, ref: ObjectRef, child: Child, status: int | None) -> events.Exited:
        """Why a process is gone, from its exit status (None: unknown) and its log."""
        kill_leftovers(child)
        kills = _oom_kills()
        tail = logs.tail_of_run(self._state.log_file(ref), child.marker)
        reason = classify(status, tail, oom_kills=kills - self._oom_kills)
        self._oom_kills = kills
        return events.Exited(reason.reason, reason.message, status)

    def close(self) -> None:
        """Wait for the probes in progress; no probe is started after this."""
        self._probers.shutdown(wait=True, cancel_futures=True)

    def _spawn(self, unit: Unit, launch: Launch, without: frozenset[str]) -> Event:
        """Take back a process whose record was lost, or start one if it is admitted."""
        if taken_back := self.adoption.without_record(_left_out(launch, without)):
            return taken_back
        unverified = self._admission.models_left_out(
            launch, serves_single_models=_many(launch) is not None
        )
        refused = first_obstacle(
            (
                lambda: self._admission.obstacle(launch),
                lambda: unverified.obstacle,
                lambda: self.adoption.ends_first(launch, unit.failures),
                lambda: self._admission.port_or_memory(self._state, launch, self._beside(launch)),
            )
        )
        if refused is not None:
            return events.SpawnFailed(refused.reason, refused.message)
        return self._start(unit, _left_out(launch, without | unverified.models.keys()), unverified)

    def _start(self, unit: Unit, launch: Launch, unverified: LeftOut) -> Event:
        """Write the intent to disk, then spawn: a crash between the two loses no child."""
        marker = uuid.uuid4().hex
        try:
            self._records.write(_record(unit, marker))
            self.rotate(launch.ref)
            pid = spawn(launch, marker, self._state, self._environ)
        except OSError as error:
            text = f"not started, the state directory cannot be written: {error.strerror}"
            return events.SpawnFailed("StateUnwritable", text)
        except EngineError as error:
            return events.SpawnFailed("EngineMissing", str(error))
        except StateError as error:
            return events.SpawnFailed("KeyUnusable", str(error))
        except ReconcilerError as error:
            return events.SpawnFailed("SpawnFailed", str(error))
        identity = identity_of(pid)
        if identity is None:  # dead already, but not reaped yet, so no other process has the pid
            _, raw = os.waitpid(pid, 0)
            tail = logs.tail_of_run(self._state.log_file(launch.ref), marker)
            reason = classify(os.waitstatus_to_exitcode(raw), tail)
            return events.SpawnFailed(reason.reason, reason.message)
        child = Child(identity, marker, self._clock.time())
        self._own_pids.add(pid)
        self._watch.add(child)
        return events.Spawned(child, tuple(unverified.models.items()))

    def rotate(self, ref: ObjectRef) -> None:
        """Rotate the log. Serialized: a second rotation at once would copy the file that was just
        emptied."""
        with self._rotating:
            rotate(self._state.log_file(ref))

    def _rewrite(self, ref: ObjectRef, ask: events.Rewrite) -> Event | None:
        """Write the files here, where no other thread writes them; the request to the process,
        which may block, goes to a helper thread."""
        refused = self._admission.unverified(ask.launch).items()
        unverified = {name: why for name, why in refused if name not in ask.loaded}
        ask = replace(ask, without=ask.without | unverified.keys())
        command = _left_out(ask.launch, ask.without).command
        try:
            write_files(self._state.workload_dir(ref), command.files)
            logs.mark_again(self._state.log_file(ref), ask.child.marker)
        except (OSError, ValueError) as error:
            return events.Rewritten(
                ask.question, False, f"its files cannot be written: {error_text(error)}"
            )
        self._probers.submit(self._ask_to_read, ref, ask, tuple(unverified.items()))
        return None

    # In helper threads.

    def _ask_to_read(
        self, ref: ObjectRef, ask: events.Rewrite, unverified: events.Unverified
    ) -> None:
        row = _many(ask.launch)
        try:
            if row is None:
                answer = events.Rewritten(ask.question, False, "it cannot change single models")
            else:
                answer = replace(many.rewrite(ask, row), unverified=unverified)
        except Exception as error:  # noqa: BLE001  without a result it would be reloading for ever
            _log.exception("bug in the reload of %s", ref.label)
            answer = events.Rewritten(ask.question, False, f"reload failed: {error}")
        self._answer(ref, answer)

    def _ask_ready(self, ref: ObjectRef, ask: events.AskReady) -> None:
        launch, pid = ask.launch, ask.child.identity.pid
        with contextlib.suppress(OSError):  # a full disk must not make a service unready
            self.rotate(ref)
        try:
            verdict = health.check(
                pid,
                launch.host,
                launch.port,
                launch.command.probe,
                health.recogniser(launch.runtime, launch.models),
                known=ask.known,
                was_ready=ask.was_ready,
                key=health.key_of(launch),
            )
            verdict = health.with_sleep(launch, verdict)
            event = events.Answered(
                ask.question,
                verdict.ready,
                verdict.reason,
                verdict.message,
                verdict.listening,
                verdict.served,
                computed_s=processor_seconds(pid) if ask.was_ready and verdict.silent else None,
                may_not_wake=self._may_not_wake(launch, verdict),
            )
            if (row := _many(launch)) and verdict.listening is not None:
                event = self._explain_models(ref, ask, row, event)
        except Exception as error:  # noqa: BLE001  without a result it would never be probed again
            _log.exception("bug in the probe of %s", ref.label)
            event = events.Answered(ask.question, False, "Loading", f"probe failed: {error}")
        self._answer(ref, event)

    def _may_not_wake(self, launch: Launch, verdict: health.HealthVerdict) -> Obstacle | None:
        """Return why a process whose only model sleeps may not load the model again."""
        is_asleep = any(model.state == "sleeping" for model in verdict.served)
        if not is_asleep or _many(launch) is not None:
            return None
        return next(iter(self._admission.unverified(launch).values()), None)

    def _explain_models(
        self, ref: ObjectRef, ask: events.AskReady, row: ManyModels, event: events.Answered
    ) -> events.Answered:
        """Add what the list of models lacks: why some failed, and which ones hang."""
        failed = model_state.failures(
            row, logs.tail_of_run(self._state.log_file(ref), ask.child.marker)
        )
        return replace(
            event,
            served=model_state.with_reasons(event.served, failed),
            failures=failed,
            silent=many.silent_models(ask.launch, row),
            unverified=tuple(self._admission.unverified(ask.launch).items()),
        )

    def _ask_slots(self, ref: ObjectRef, ask: events.AskSlots) -> None:
        launch, pid = ask.launch, ask.child.identity.pid
        busy = computed_s = None
        try:
            row = _many(launch)
            busy = (
                many.requests_in_flight(launch, row, ask.models)
                if row
                else health.requests_in_flight(launch)
            )
            if busy is None and not health.answers(launch, timeout_s=_SHORT_S):
                computed_s = processor_seconds(pid)
        except Exception:  # noqa: BLE001  without a result a drain would last until its deadline
            _log.exception("bug in counting the requests of %s", ref.label)
        self._answer(ref, events.SlotsAnswered(ask.question, busy, computed_s))


def _many(launch: Launch) -> ManyModels | None:
    """How the runtime handles single models. A record may name a runtime of a newer version."""
    row = RUNTIMES.get(launch.runtime)
    return row.many if row else None


def _left_out(launch: Launch, names: frozenset[str]) -> Launch:
    """The launch without these models."""
    row = _many(launch)
    if row is None or not names:
        return launch
    return replace(launch, command=row.without(launch.command, names))


def _record(unit: Unit, marker: str | None) -> ProcessRecord:
    return ProcessRecord(
        launch=unit.launch,
        wanted=unit.is_wanted,
        boot=boot_id(),
        marker=marker,
        child=unit.child,
        was_ready=unit.was_ready,
        ready_since=unit.since if unit.reason == "Ready" else unit.ready_since,
        failures=unit.failures,
        reason=unit.reason,
        message=unit.message,
        start_seconds=unit.start_seconds,
        reloading=unit.reloading if unit.reloading and unit.reloading.is_due_again else None,
        quarantined=unit.quarantined,
    )


def _oom_kills() -> int:
    """How many processes the kernel has OOM-killed since boot; 0 where it does not count them."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
