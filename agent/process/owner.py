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
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from agent.process import events
from agent.process.admission import StartAdmission
from agent.process.events import Event, ProcessTiming
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.log_keeper import leave_behind
from agent.process.pidwatch import PidWatch
from agent.process.units import Units
from agent.state.directory import StateDir
from agent.system.clock import Clock, SystemClock
from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef

_NOTICES = 200
_LOOK_S = 0.1  # whether the thread that is to answer is still there
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
    once, and may wake a loop. The caller holds the state directory's lock. `admission` decides
    about each start, in the owner thread.
    """

    def __init__(
        self,
        state: StateDir,
        admission: StartAdmission,
        *,
        clock: Clock | None = None,
        timing: ProcessTiming | None = None,
        changed: Callable[[], None] = lambda: None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root = state.root
        self._clock: Clock = clock or SystemClock()
        self._timing = timing or ProcessTiming()
        self._changed = changed
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        self._watch = PidWatch(self._woken.fileno())
        self._units = Units(
            state,
            clock=self._clock,
            timing=self._timing,
            environ=dict(os.environ if environ is None else environ),
            watch=self._watch,
            answer=self._submit_event,
            note=self._notice,
            admission=admission,
        )
        self._thread = threading.Thread(target=self._loop, name="processes", daemon=True)
        self._published: dict[ObjectRef, ProcessSnapshot] = {}
        self._snapshot: tuple[ProcessSnapshot, ...] = ()  # the same, for other threads
        self._news = threading.Condition()
        self._notices: deque[Notice] = deque(maxlen=_NOTICES)
        self._ending = False
        self._closed = False

    def start(self, *, revive: bool = True) -> None:
        """Take over what an earlier run of the agent left running, then begin.

        `revive` False does not restart recorded services whose process is gone: for a command that
        came to stop something.
        """
        self._units.take_over(revive=revive)
        self._publish()
        self._thread.start()

    def run(self, launch: Launch) -> None:
        """Keep this launch running; no effect if it already is."""
        self._post_event(launch.ref, events.Run(launch))

    def update(self, launch: Launch) -> None:
        """Replace the description of a running process without touching it."""
        self._post_event(launch.ref, events.Update(launch))

    def reload(self, launch: Launch, models: frozenset[str]) -> None:
        """Keep this launch running, which differs from the running one in these models only: the
        rest keep serving. If that is not possible, the process is drained and restarted."""
        self._post_event(launch.ref, events.Reload(launch, models))

    def restart(self, ref: ObjectRef) -> None:
        """Drain and stop the process and start the same launch again; ends a wait for a retry."""
        self._post_event(ref, events.RestartRequested())

    def stop(self, ref: ObjectRef) -> None:
        """Drain, stop and forget the service; no effect if it does not exist."""
        self._post_event(ref, events.Stop())

    def save_all(self) -> None:
        """Write every record again: the state directory was made anew."""
        self.call(self._units.save_each)

    def mend_records(self) -> None:
        """Write records again that were damaged on the disk: other programs read them."""
        self.call(self._units.mend_records)

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
        while not wait((future,), timeout=_LOOK_S).done:
            if not self._thread.is_alive():
                raise StateError("the owner of the processes is closed")
        return future.result()

    def why_unwritable(self) -> str | None:
        """Why the record of another process could not be written, so that it could not be started;
        None if it could."""
        return self._units.why_unwritable()

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
        self._units.close()
        if left := [state.pid for state in self._snapshot if state.pid]:
            leave_behind(self._root, left)
        self._watch.close()
        self._waking.close()
        self._woken.close()

    def _stop_all(self, deadline_s: float) -> None:
        submitted = threading.Event()
        for task in (self._units.stop_each, self._publish, submitted.set):
            self._submit(task)
        submitted.wait(deadline_s)  # before that the snapshot may lack services submitted just now
        if not self.wait_for(lambda states: not states, deadline_s):
            self._submit(self._units.kill_each)
            self.wait_for(lambda states: not states, self._timing.kill_again_s)

    def _post(self, task: Callable[[], None]) -> None:
        if self._closed:
            raise StateError("the owner of the processes is closed")
        self._submit(task)

    def _post_event(self, ref: ObjectRef, event: Event) -> None:
        self._post(partial(self._units.feed, ref, event))

    def _submit_event(self, ref: ObjectRef, event: Event) -> None:
        self._submit(partial(self._units.feed, ref, event))

    def _submit(self, task: Callable[[], None]) -> None:
        self._inbox.put(task)
        # full: it wakes anyway; closed: no thread is left to wake
        with contextlib.suppress(OSError):
            self._waking.send(b"!")

    # From here on: the owner thread, or `start` before it runs.

    def _loop(self) -> None:
        while not self._ending:
            ended = self._watch.wait(self._units.seconds_to_next())
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(65536)
            self._guard(self._units.notice_sleep)
            for pid in ended:
                self._guard(partial(self._units.on_exit, pid))
            while not self._inbox.empty():
                self._guard(self._inbox.get())
            self._guard(self._units.tick)
            self._publish()

    def _guard(self, task: Callable[[], None]) -> None:
        """A bug in the code of one service must not end the thread that owns them all."""
        try:
            task()
        except Exception:  # noqa: BLE001  see above
            _log.exception("bug in the owner of the processes; the others go on")

    def _end(self) -> None:
        self._ending = True

    def _publish(self) -> None:
        states = self._units.snapshots()
        if states == self._published:
            return
        self._published = states
        with self._news:
            self._snapshot = tuple(states[ref] for ref in sorted(states))
            self._news.notify_all()
        self._guard(self._changed)

    def _notice(self, ref: ObjectRef, text: str) -> None:
        _log.info("%s: %s", ref.label, text)
        self._notices.append(Notice(self._clock.time(), ref, text))
