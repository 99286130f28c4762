"""The state machines of a node's services, and their effects carried out in order. Used by one
thread, that of the owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.process import events, supervisor
from agent.process.admission import Beside, StartAdmission
from agent.process.backoff import waiting
from agent.process.effects import Effects
from agent.process.events import Effect, Event, ProcessTiming
from agent.process.exits import NEVER_STARTED
from agent.process.identity import boot_id
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.pidwatch import PidWatch
from agent.process.records import ProcessRecord
from agent.process.unit import Unit
from agent.state.directory import StateDir
from agent.system.clock import Clock, Moment
from reconciler.api.meta import ObjectRef

_SLEPT_S = 5.0  # if the clocks differ by more than this, the machine slept or one of them was set
_WAITS_FOR_OURS = ("MemoryFits", "WaitsForPort")  # until another process of this node has ended
_log = logging.getLogger(__name__)


class Units:
    """One unit for each service that is wanted or has a process.

    `answer` takes a probe's result from any thread and feeds it here in the owner's; `note` takes a
    line about a service; `admission` decides about each start.
    """

    def __init__(
        self,
        state: StateDir,
        *,
        clock: Clock,
        timing: ProcessTiming,
        environ: Mapping[str, str],
        watch: PidWatch,
        answer: Callable[[ObjectRef, Event], None],
        note: Callable[[ObjectRef, str], None],
        admission: StartAdmission,
    ) -> None:
        self._clock = clock
        self._timing = timing
        self._note = note
        self._effects = Effects(state, clock, environ, watch, answer, note, admission, self._beside)
        self._units: dict[ObjectRef, Unit] = {}
        self._shown: dict[ObjectRef, tuple[Unit, ProcessSnapshot]] = {}
        self._clock_gap = 0.0

    def take_over(self, *, revive: bool) -> None:
        """Continue from the records of an earlier run: adopt processes that live; restart those
        that are gone, if they are to be revived."""
        self._clock_gap = self._gap()
        for record in self._effects.load():
            self._take_over(record, revive)

    def feed(self, ref: ObjectRef, event: Event) -> None:
        """Take a step and carry out its effects; an event that an effect returns comes first."""
        following: Event | None = event
        while following is not None:
            unit, effects = supervisor.step(
                self._units.get(ref), following, self._now(), self._timing
            )
            if unit is None:
                self._units.pop(ref, None)
            else:
                self._units[ref] = unit
            following = None
            for effect in effects:
                following = self._perform(ref, unit, effect) or following

    def tick(self) -> None:
        """Wake each unit whose time has come."""
        now = self._clock.monotonic()
        for ref, unit in tuple(self._units.items()):
            if unit.wake_at is not None and unit.wake_at <= now:
                self.feed(ref, events.Tick())

    def notice_sleep(self) -> None:
        """After a jump of the clock, probe every service again."""
        gap = self._gap()
        jump_s, self._clock_gap = gap - self._clock_gap, gap
        if abs(jump_s) > _SLEPT_S:
            _log.info("the clock jumped by %.0f s: every service is probed again", jump_s)
            for ref in tuple(self._units):
                self.feed(ref, events.Woke())

    def on_exit(self, pid: int) -> None:
        """The process of that id has ended, if it is one of ours."""
        for ref, unit in tuple(self._units.items()):
            if unit.child is not None and unit.child.identity.pid == pid:
                end = self._effects.collect_exit(ref, unit.child)
                if end is not None:
                    self.feed(ref, end)
                    self._something_came_free()

    def save_each(self) -> None:
        """Write what is known of every service, where nothing is on the disk any more."""
        for unit in self._units.values():
            self._effects.save(unit)
            self._effects.restore_key(unit)

    def mend_records(self) -> None:
        """Write every record again if one is damaged on the disk."""
        if self._effects.set_damaged_aside():
            for unit in self._units.values():
                self._effects.save(unit)

    def stop_each(self) -> None:
        for ref in tuple(self._units):
            self.feed(ref, events.Stop())

    def kill_each(self) -> None:
        for ref, unit in tuple(self._units.items()):
            if unit.child is not None:
                self._note(ref, "the deadline is over: killed")
                self._effects.kill(unit.child)

    def seconds_to_next(self) -> float | None:
        """Until a unit has something to do by itself; None: nothing is due."""
        due = [unit.wake_at for unit in self._units.values() if unit.wake_at is not None]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def snapshots(self) -> dict[ObjectRef, ProcessSnapshot]:
        """One of every unit. Only those that changed are built: of 50 services a probe's result
        concerns one."""
        shown: dict[ObjectRef, tuple[Unit, ProcessSnapshot]] = {}
        for ref, unit in self._units.items():
            known = self._shown.get(ref)
            if known is None or known[0] is not unit:
                known = unit, supervisor.show(unit, self._timing)
            shown[ref] = known
        self._shown = shown
        return {ref: snapshot for ref, (_, snapshot) in shown.items()}

    def why_unwritable(self) -> str | None:
        """Why the record of another process could not be written, so that it could not be started;
        None if it could. From any thread."""
        return self._effects.why_unwritable()

    def close(self) -> None:
        """End the helper threads; processes keep running."""
        self._effects.close()

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.time())

    def _gap(self) -> float:
        now = self._now()
        return now.wall - now.monotonic

    def _perform(self, ref: ObjectRef, unit: Unit | None, effect: Effect) -> Event | None:
        """Carry out one effect. If it fails because of a bug, the effects after it still run."""
        try:
            return self._effects.perform(ref, unit, effect)
        except Exception as error:  # noqa: BLE001  see above
            _log.exception("bug in %s of %s", type(effect).__name__, ref.label)
            if isinstance(effect, events.Spawn):  # without a result it would be spawning for ever
                return events.SpawnFailed("SpawnFailed", f"a bug in fleet-agent: {error}")
            return None

    def _take_over(self, record: ProcessRecord, revive: bool) -> None:
        """Continue from one record: adopt its process, or treat its absence as an exit."""
        ref, child = record.launch.ref, self._effects.adoption.by_record(record)
        if child is None and not record.wanted:
            self._effects.forget(ref)
            return
        if child is None:
            unit = self._absent(record)
            if self._effects.adoption.may_be_another(record.launch):  # a plan comes first
                unit = replace(unit, wake_at=self._now().monotonic + self._timing.backoff_refused_s)
            self._units[ref] = unit if revive else replace(unit, wake_at=None)
            if not revive:
                return
        else:
            unit = supervisor.adopted(
                record.launch,
                child,
                self._now(),
                was_ready=record.was_ready,
                ready_since=record.ready_since,
                failures=record.failures,
                start_seconds=record.start_seconds,
            )
            unit = replace(unit, reloading=record.reloading, quarantined=record.quarantined)
            self._units[ref] = unit
            self._note(ref, f"adopted pid {child.identity.pid}")
        self._effects.save(self._units[ref])
        if not record.wanted:
            self.feed(ref, events.Stop())

    def _absent(self, record: ProcessRecord) -> Unit:
        """A wanted service whose process is gone. After a reboot, or if it never started, that is
        not a failure: it starts at once."""
        reason, message, failures = record.reason, record.message, record.failures
        if record.boot != boot_id() or (record.child is None and record.marker is not None):
            reason, message, failures = "Starting", "", 0
        elif record.child is not None:
            end = self._effects.post_mortem(record.launch.ref, record.child, None)
            reason, message, failures = end.reason, end.message, failures + 1
            self._note(record.launch.ref, f"{reason}: {message}")
        unit = waiting(
            record.launch,
            reason,
            message,
            self._now(),
            self._timing,
            failures=failures,
            start_seconds=record.start_seconds,
        )
        return replace(unit, quarantined=record.quarantined)

    def _beside(self, launch: Launch) -> Beside:
        """The other services. One that waits for a restart after a crash keeps its memory."""
        others = [unit for ref, unit in self._units.items() if ref != launch.ref]
        has_memory = (u for u in others if u.child is not None or u.reason not in NEVER_STARTED)
        on_port = (u for u in others if u.child is not None and u.launch.port == launch.port)
        neighbour = next(on_port, None)
        doing = "is leaving" if neighbour and neighbour.phase.is_stopping else "has"
        return Beside(
            tuple(supervisor.show(u, self._timing) for u in has_memory),
            f"{neighbour.launch.ref.label} {doing} port {launch.port}" if neighbour else "",
        )

    def _something_came_free(self) -> None:
        now = self._clock.monotonic()
        for ref, unit in tuple(self._units.items()):
            if unit.reason in _WAITS_FOR_OURS and unit.wake_at is not None:
                self._units[ref] = replace(unit, wake_at=now)
