"""Carry out what the state machines ask for. Used by the owner thread only, but for the answers
to questions, which helper threads hand to `answer`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from agent.clock import Clock
from agent.process import events, health, logs, many
from agent.process.events import Effect, Event
from agent.process.exits import classify
from agent.process.identity import boot_id, find_marked, identity_of, is_ours
from agent.process.launch import Child, Launch
from agent.process.pidwatch import PidWatch, kill_leftovers
from agent.process.ports import not_local, taken_by
from agent.process.records import Record, Records
from agent.process.spawn import spawn, write_files
from agent.process.unit import Unit
from agent.state import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.errors import EngineError, ReconcilerError
from reconciler.many import ManyModels
from reconciler.runtimes import RUNTIMES

_PROBERS = 8  # hung services hold one each, for at most the answer timeout
_log = logging.getLogger(__name__)


class Effects:
    """Processes, records and questions of one state directory.

    `answer` takes the answer to a question from any thread; `note` one line for people; `refuses`
    says why the machine's memory does not take a process now.
    """

    def __init__(
        self,
        state: StateDir,
        clock: Clock,
        environ: Mapping[str, str],
        watch: PidWatch,
        answer: Callable[[ObjectRef, Event], None],
        note: Callable[[ObjectRef, str], None],
        refuses: Callable[[Launch], str | None] = lambda _: None,
    ) -> None:
        self._state = state
        self._clock = clock
        self._environ = environ
        self._watch = watch
        self._answer = answer
        self._note = note
        self._refuses = refuses
        self._records = Records(state)
        self._probers = ThreadPoolExecutor(_PROBERS, thread_name_prefix="probe")
        self._own_pids: set[int] = set()  # our children: they are reaped and tell their status
        self._oom_kills = _oom_kills()

    def perform(self, ref: ObjectRef, unit: Unit | None, effect: Effect) -> Event | None:
        """Do it; `unit` is as the step left it. Spawn is answered, and a Rewrite that fails."""
        match effect:
            case events.Spawn(launch, without):
                assert unit is not None
                return self._spawn(unit, _left_out(launch, without))
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
                self._records.remove(ref)
            case events.Note(text):
                self._note(ref, text)
        return None

    def save(self, unit: Unit) -> None:
        try:
            self._records.write(_record(unit, unit.child.marker if unit.child else None))
        except OSError as error:
            # the intent written before the spawn still finds the process after a crash of ours
            label = unit.launch.ref.label
            _log.error("%s: its record cannot be written: %s", label, error.strerror)

    def load(self) -> tuple[Record, ...]:
        return self._records.load()

    def forget(self, ref: ObjectRef) -> None:
        self._records.remove(ref)

    def find(self, record: Record) -> Child | None:
        """The record's process, now watched, if it is alive and surely ours."""
        child = record.child
        if child is None and record.marker is not None and record.boot == boot_id():
            identity = find_marked(record.marker)
            if identity is not None:
                child = Child(identity, record.marker, self._clock.time(), adopted=True)
        if child is None or not is_ours(child) or not self._watch.add(child):
            return None
        return child

    def kill(self, child: Child) -> None:
        self._watch.signal(child, signal.SIGKILL)

    def bury(self, ref: ObjectRef, child: Child) -> events.Exited | None:
        """A watched process has ended: learn why, and end what it left behind.

        None when it has not, after all.
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
        """Why a process is gone, from its status (None: not known) and its log."""
        kill_leftovers(child)
        kills = _oom_kills()
        tail = logs.tail_of_run(self._state.log_file(ref), child.marker)
        found = classify(status, tail, oom_kills=kills - self._oom_kills)
        self._oom_kills = kills
        return events.Exited(found.reason, found.message, status)

    def close(self) -> None:
        """Wait for the questions under way; nothing is asked after this."""
        self._probers.shutdown(wait=True, cancel_futures=True)

    def _spawn(self, unit: Unit, launch: Launch) -> Event:
        """Intent on disk, then the process: no crash of ours between the two loses a child."""
        if why := not_local(launch.host):
            return events.SpawnFailed("HostIPNotLocal", why)
        taken = taken_by(launch.host, launch.port)
        if taken is not None:
            return events.SpawnFailed("PortInUse", taken)
        if why := self._refuses(launch):
            return events.SpawnFailed("MemoryFits", why)
        marker = uuid.uuid4().hex
        try:
            self._records.write(_record(unit, marker))
            logs.rotate(self._state.log_file(launch.ref))
            pid = spawn(launch, marker, self._state, self._environ)
        except OSError as error:
            text = f"not started, the state directory cannot be written: {error.strerror}"
            return events.SpawnFailed("StateUnwritable", text)
        except EngineError as error:
            return events.SpawnFailed("EngineMissing", str(error))
        except ReconcilerError as error:
            return events.SpawnFailed("SpawnFailed", str(error))
        identity = identity_of(pid)
        if identity is None:  # dead already; not reaped yet, so the pid is still its own
            _, raw = os.waitpid(pid, 0)
            tail = logs.tail_of_run(self._state.log_file(launch.ref), marker)
            found = classify(os.waitstatus_to_exitcode(raw), tail)
            return events.SpawnFailed(found.reason, found.message)
        child = Child(identity, marker, self._clock.time())
        self._own_pids.add(pid)
        self._watch.add(child)
        return events.Spawned(child)

    def _rewrite(self, ref: ObjectRef, ask: events.Rewrite) -> Event | None:
        """The files are written here, before anything else may write them; what follows waits."""
        command = _left_out(ask.launch, ask.without).command
        try:
            write_files(self._state.workload_dir(ref), command.files)
            logs.mark_again(self._state.log_file(ref), ask.child.marker)
        except (OSError, ValueError) as error:
            return events.Rewritten(ask.question, False, f"its files cannot be written: {error}")
        self._probers.submit(self._ask_to_read, ref, ask)
        return None

    # In helper threads.

    def _ask_to_read(self, ref: ObjectRef, ask: events.Rewrite) -> None:
        row = _many(ask.launch)
        try:
            if row is None:
                answer = events.Rewritten(ask.question, False, "it cannot change single models")
            else:
                answer = many.rewrite(ask, row)
        except Exception as error:  # noqa: BLE001  unanswered, it would be reloading for ever
            _log.exception("bug in the reload of %s", ref.label)
            answer = events.Rewritten(ask.question, False, f"reload failed: {error}")
        self._answer(ref, answer)

    def _ask_ready(self, ref: ObjectRef, ask: events.AskReady) -> None:
        launch, pid = ask.launch, ask.child.identity.pid
        with contextlib.suppress(OSError):  # a full disk must not make a service unready
            logs.rotate(self._state.log_file(ref))
        try:
            found = health.check(
                pid,
                launch.host,
                launch.port,
                launch.command.probe,
                health.recogniser(launch.runtime, launch.models),
                known=ask.known,
                was_ready=ask.was_ready,
                key=health.key_of(launch),
            )
            event = events.Answered(
                ask.question,
                found.ready,
                found.reason,
                found.message,
                found.listening,
                found.served,
            )
            if (row := _many(launch)) and found.listening is not None:
                event = self._look_closer(ref, ask, row, event)
        except Exception as error:  # noqa: BLE001  unanswered, it would be the last question
            _log.exception("bug in the probe of %s", ref.label)
            event = events.Answered(ask.question, False, "Loading", f"probe failed: {error}")
        self._answer(ref, event)

    def _look_closer(
        self, ref: ObjectRef, ask: events.AskReady, row: ManyModels, event: events.Answered
    ) -> events.Answered:
        """What the list of models does not tell: why some failed, and which ones hang."""
        failed = many.failures(row, logs.tail_of_run(self._state.log_file(ref), ask.child.marker))
        return replace(
            event,
            served=many.explained(event.served, failed),
            failures=failed,
            silent=many.silent(ask.launch, row),
        )

    def _ask_slots(self, ref: ObjectRef, ask: events.AskSlots) -> None:
        launch = ask.launch
        busy = None
        try:
            row = _many(launch)
            busy = (
                many.requests_in_flight(launch, row, ask.models)
                if row
                else health.requests_in_flight(launch)
            )
        except Exception:  # noqa: BLE001  unanswered, a drain would last until its deadline
            _log.exception("bug in counting the requests of %s", ref.label)
        self._answer(ref, events.SlotsAnswered(ask.question, busy))


def _many(launch: Launch) -> ManyModels | None:
    """How its single models are handled. A record may name a runtime of a newer version."""
    row = RUNTIMES.get(launch.runtime)
    return row.many if row else None


def _left_out(launch: Launch, names: frozenset[str]) -> Launch:
    """The launch without these models."""
    row = _many(launch)
    if row is None or not names:
        return launch
    return replace(launch, command=row.without(launch.command, names))


def _record(unit: Unit, marker: str | None) -> Record:
    return Record(
        launch=unit.launch,
        wanted=unit.is_wanted,
        boot=boot_id(),
        marker=marker,
        child=unit.child,
        was_ready=unit.was_ready,
        failures=unit.failures,
        reason=unit.reason,
        message=unit.message,
        start_seconds=unit.start_seconds,
        reloading=unit.reloading if unit.reloading and unit.reloading.is_due_again else None,
        quarantined=unit.quarantined,
    )


def _oom_kills() -> int:
    """How often the kernel killed for lack of memory since boot; 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
