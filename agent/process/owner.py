"""The owner of a node's processes: one thread holds all state machines and carries out their
effects.

All other threads submit and return at once, or read the last snapshot, which may be stale: show it,
never act on it. The owner thread waits for exits, submissions and timers and never for a process or
the network: HTTP probes run in a few helper threads and come back as events.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from agent.process import events, supervisor
from agent.process.effects import Effects
from agent.process.events import Effect, Event, ProcessTiming
from agent.process.identity import boot_id
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.pidwatch import PidWatch
from agent.process.records import ProcessRecord
from agent.process.unit import Unit
from agent.state.directory import StateDir
from agent.system.clock import Clock, Moment, SystemClock
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef

_SLEPT_S = 5.0  # if the clocks differ by more than this, the machine slept or one of them was set
_NOTICES = 200
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Notice:
    """One change that was made. `at` is seconds since the epoch."""

    at: float
    ref: ObjectRef
    text: str


class Processes:
    """Keeps the wanted processes of one state directory running.

    `changed` is called in the owner thread after each change of the snapshot: it must return at
    once, and may wake a loop. The caller holds the state directory's lock. `refuses` is asked
    before each start, with the services that already have memory: it returns why the process does
    not fit, or None.
    """

    def __init__(
        self,
        state: StateDir,
        *,
        clock: Clock | None = None,
        timing: ProcessTiming | None = None,
        changed: Callable[[], None] = lambda: None,
        environ: Mapping[str, str] | None = None,
        refuses: Callable[[Launch, tuple[ProcessSnapshot, ...]], str | None] = lambda *_: None,
    ) -> None:
        self._refuses = refuses
        self._clock: Clock = clock or SystemClock()
        self._timing = timing or ProcessTiming()
        self._changed = changed
        self._units: dict[ObjectRef, Unit] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        self._watch = PidWatch(self._woken.fileno())
        self._effects = Effects(
            state,
            self._clock,
            dict(os.environ if environ is None else environ),
            self._watch,
            self._on_result,
            self._notice,
            self._refused,
        )
        self._thread = threading.Thread(target=self._loop, name="processes", daemon=True)
        self._published: dict[ObjectRef, Unit] = {}
        self._states: dict[ObjectRef, ProcessSnapshot] = {}  # of the published units
        self._snapshot: tuple[ProcessSnapshot, ...] = ()  # the same, for other threads
        self._news = threading.Condition()
        self._notices: deque[Notice] = deque(maxlen=_NOTICES)
        self._ending = False
        self._closed = False
        self._clock_gap = 0.0

    def start(self, *, revive: bool = True) -> None:
        """Take over what an earlier run of the agent left running, then begin.

        `revive` False does not restart recorded services whose process is gone: for a command that
        came to stop something.
        """
        self._clock_gap = self._gap()
        for record in self._effects.load():
            self._take_over(record, revive)
        self._publish()
        self._thread.start()

    def run(self, launch: Launch) -> None:
        """Keep this launch running; no effect if it already is."""
        self._post(partial(self._feed, launch.ref, events.Run(launch)))

    def update(self, launch: Launch) -> None:
        """Replace the description of a running process without touching it."""
        self._post(partial(self._feed, launch.ref, events.Update(launch)))

    def reload(self, launch: Launch, models: frozenset[str]) -> None:
        """Keep this launch running, which differs from the running one in these models only: the
        rest keep serving. If that is not possible, the process is drained and restarted."""
        self._post(partial(self._feed, launch.ref, events.Reload(launch, models)))

    def restart(self, ref: ObjectRef) -> None:
        """Drain and stop the process and start the same launch again; ends a wait for a retry."""
        self._post(partial(self._feed, ref, events.RestartRequested()))

    def stop(self, ref: ObjectRef) -> None:
        """Drain, stop and forget the service; no effect if it does not exist."""
        self._post(partial(self._feed, ref, events.Stop()))

    def call(self, function: Callable[[], T]) -> T:
        """Run a short function in the owner thread, after everything submitted before.

        Never from `changed`, which runs in that thread.
        """
        future: Future[T] = Future()

        def task() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  re-raised in the caller's thread
                future.set_exception(error)

        self._post(task)
        while not wait((future,), timeout=1.0).done:
            if not self._thread.is_alive():
                raise StateError("the owner of the processes is closed")
        return future.result()

    def why_unwritable(self) -> str | None:
        """Why the record of another process could not be written, so that it could not be started;
        None if it could."""
        return self._effects.why_unwritable()

    def snapshot(self) -> tuple[ProcessSnapshot, ...]:
        """The last published state, sorted by ref."""
        return self._snapshot

    def notices(self) -> tuple[Notice, ...]:
        """The latest changes that were made, oldest first."""
        return tuple(self._notices)

    def wait_for(
        self, condition: Callable[[tuple[ProcessSnapshot, ...]], bool], timeout_s: float
    ) -> bool:
        """Wait until a snapshot meets the condition; False if the time runs out first."""
        with self._news:
            return self._news.wait_for(lambda: condition(self._snapshot), timeout_s)

    def close(self, *, stop_children: bool, deadline_s: float = 90.0) -> None:
        """Stop the owner. The processes keep running, or are drained and stopped until the deadline
        and killed after it."""
        if self._closed:
            return
        self._closed = True
        if self._thread.is_alive():
            if stop_children:
                self._stop_all(deadline_s)
            self._submit(self._end)
            self._thread.join()
        self._effects.close()
        self._watch.close()
        self._waking.close()
        self._woken.close()

    def _stop_all(self, deadline_s: float) -> None:
        submitted = threading.Event()
        for task in (self._stop_each, self._publish, submitted.set):
            self._submit(task)
        submitted.wait(deadline_s)  # before that the snapshot may lack services submitted just now
        if not self.wait_for(lambda states: not states, deadline_s):
            self._submit(self._kill_each)
            self.wait_for(lambda states: not states, self._timing.kill_again_s)

    def _post(self, task: Callable[[], None]) -> None:
        if self._closed:
            raise StateError("the owner of the processes is closed")
        self._submit(task)

    def _on_result(self, ref: ObjectRef, event: Event) -> None:
        self._submit(partial(self._feed, ref, event))

    def _submit(self, task: Callable[[], None]) -> None:
        self._inbox.put(task)
        # full: it wakes anyway; closed: no thread is left to wake
        with contextlib.suppress(OSError):
            self._waking.send(b"!")

    # From here on: the owner thread, or `start` before it runs.

    def _loop(self) -> None:
        while not self._ending:
            ended = self._watch.wait(self._seconds_to_next())
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(65536)
            self._guard(self._notice_sleep)
            for pid in ended:
                self._guard(partial(self._on_exit, pid))
            while not self._inbox.empty():
                self._guard(self._inbox.get())
            self._guard(self._tick)
            self._publish()

    def _guard(self, task: Callable[[], None]) -> None:
        """A bug in the code of one service must not end the thread that owns them all."""
        try:
            task()
        except Exception:  # noqa: BLE001  see above
            _log.exception("bug in the owner of the processes; the others go on")

    def _seconds_to_next(self) -> float | None:
        due = [unit.wake_at for unit in self._units.values() if unit.wake_at is not None]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.time())

    def _gap(self) -> float:
        now = self._now()
        return now.wall - now.monotonic

    def _notice_sleep(self) -> None:
        gap = self._gap()
        jump_s, self._clock_gap = gap - self._clock_gap, gap
        if abs(jump_s) > _SLEPT_S:
            _log.info("the clock jumped by %.0f s: every service is probed again", jump_s)
            for ref in tuple(self._units):
                self._feed(ref, events.Woke())

    def _tick(self) -> None:
        now = self._clock.monotonic()
        for ref, unit in tuple(self._units.items()):
            if unit.wake_at is not None and unit.wake_at <= now:
                self._feed(ref, events.Tick())

    def _on_exit(self, pid: int) -> None:
        for ref, unit in tuple(self._units.items()):
            if unit.child is not None and unit.child.identity.pid == pid:
                end = self._effects.collect_exit(ref, unit.child)
                if end is not None:
                    self._feed(ref, end)
                    self._memory_came_free()

    def _refused(self, launch: Launch) -> str | None:
        """Why there is not enough memory for a launch. A service that waits for a restart after a
        crash keeps its memory; one that was refused memory holds none."""
        beside = (unit for ref, unit in self._units.items() if ref != launch.ref)
        has_memory = (u for u in beside if u.child is not None or u.reason != "MemoryFits")
        return self._refuses(launch, tuple(supervisor.show(u, self._timing) for u in has_memory))

    def _memory_came_free(self) -> None:
        now = self._clock.monotonic()
        for ref, unit in tuple(self._units.items()):
            if unit.reason == "MemoryFits" and unit.wake_at is not None:
                self._units[ref] = replace(unit, wake_at=now)

    def _stop_each(self) -> None:
        for ref in tuple(self._units):
            self._feed(ref, events.Stop())

    def _kill_each(self) -> None:
        for ref, unit in tuple(self._units.items()):
            if unit.child is not None:
                self._notice(ref, "the deadline is over: killed")
                self._effects.kill(unit.child)

    def _end(self) -> None:
        self._ending = True

    def _feed(self, ref: ObjectRef, event: Event) -> None:
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
        ref, child = record.launch.ref, self._effects.find(record)
        if child is None and not record.wanted:
            self._effects.forget(ref)
            return
        if child is None:
            unit = self._absent(record)
            self._units[ref] = unit if revive else replace(unit, wake_at=None)
            if not revive:
                return
        else:
            unit = supervisor.adopted(
                record.launch,
                child,
                self._now(),
                was_ready=record.was_ready,
                failures=record.failures,
                start_seconds=record.start_seconds,
            )
            unit = replace(unit, reloading=record.reloading, quarantined=record.quarantined)
            self._units[ref] = unit
            self._notice(ref, f"adopted pid {child.identity.pid}")
        self._effects.save(self._units[ref])
        if not record.wanted:
            self._feed(ref, events.Stop())

    def _absent(self, record: ProcessRecord) -> Unit:
        """A wanted service whose process is gone. After a reboot, or if it never started, that is
        not a failure: it starts at once."""
        reason, message, failures = record.reason, record.message, record.failures
        if record.boot != boot_id() or (record.child is None and record.marker is not None):
            reason, message, failures = "Starting", "", 0
        elif record.child is not None:
            end = self._effects.post_mortem(record.launch.ref, record.child, None)
            reason, message, failures = end.reason, end.message, failures + 1
            self._notice(record.launch.ref, f"{reason}: {message}")
        unit = supervisor.waiting(
            record.launch,
            reason,
            message,
            self._now(),
            self._timing,
            failures=failures,
            start_seconds=record.start_seconds,
        )
        return replace(unit, quarantined=record.quarantined)

    def _publish(self) -> None:
        """Rebuild only the snapshots that changed: of 50 services a probe result concerns one."""
        states = {
            ref: self._states[ref]
            if self._published.get(ref) is unit
            else supervisor.show(unit, self._timing)
            for ref, unit in self._units.items()
        }
        self._published = dict(self._units)
        if states == self._states:
            return
        self._states = states
        with self._news:
            self._snapshot = tuple(states[ref] for ref in sorted(states))
            self._news.notify_all()
        self._guard(self._changed)

    def _notice(self, ref: ObjectRef, text: str) -> None:
        _log.info("%s: %s", ref.label, text)
        self._notices.append(Notice(self._clock.time(), ref, text))
