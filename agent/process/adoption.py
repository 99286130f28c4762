"""Own again what an earlier run of the agent started, and say once which process that is, and why.

By its record; or, where that was lost, by what the process says itself (`orphan.py`).
"""

from __future__ import annotations

import logging
import signal

from agent.process import events
from agent.process.identity import boot_id, find_marked, is_ours
from agent.process.launch import Child, Launch
from agent.process.orphan import is_elsewhere, orphan_of, runs_as
from agent.process.pidwatch import PidWatch
from agent.process.records import ProcessRecord
from agent.state.directory import StateDir
from agent.system.clock import Clock
from reconciler.core.observation import Obstacle

_PATIENT_TRIES = 6  # a minute
_BY_RECORD = "its pid, start time and marker are those of its record"
_BY_MARKER = "it has the marker that was noted before it was started"
_BY_ITSELF = "no record knows it, but its folder and marker are of this state directory"
_log = logging.getLogger(__name__)


class Adoption:
    """The processes of one state directory. Used by the owner thread only."""

    def __init__(self, state: StateDir, clock: Clock, watch: PidWatch) -> None:
        self._state = state
        self._clock = clock
        self._watch = watch
        self._sent: dict[int, signal.Signals] = {}  # to processes that end, by pid

    def by_record(self, record: ProcessRecord) -> Child | None:
        """The process of a record, now watched, if it is alive and certainly the one we started."""
        child, proof = record.child, _BY_RECORD
        if child is None and record.marker is not None and record.boot == boot_id():
            identity = find_marked(record.marker)
            if identity is not None and not is_elsewhere(self._state, identity.pid):
                child = Child(identity, record.marker, self._clock.time(), adopted=True)
                proof = _BY_MARKER
        if child is None or not is_ours(child) or not self._watch.add(child):
            return None
        _say_adopted(record.launch, child, proof)
        return child

    def may_be_another(self, launch: Launch) -> bool:
        """Whether a process serves it that this launch would not have started: a record of before,
        as from a copy, says nothing of it, and what is declared now may."""
        orphan = orphan_of(self._state, launch.ref)
        return orphan is not None and not runs_as(launch, orphan.identity.pid)

    def without_record(self, launch: Launch) -> events.Spawned | None:
        """Own again a process whose record was lost, if it is what would be started."""
        orphan = orphan_of(self._state, launch.ref)
        if orphan is None or not runs_as(launch, orphan.identity.pid):
            return None
        if not self._watch.add(orphan):
            return None
        _say_adopted(launch, orphan, f"{_BY_ITSELF}, and it runs as declared")
        return events.Spawned(orphan)

    def ends_first(self, launch: Launch, failures: int) -> Obstacle | None:
        """End a process whose record was lost and that is not what would be started: with patience,
        since clients may wait for its answers. None: there is none."""
        orphan = orphan_of(self._state, launch.ref)
        if orphan is None or not self._watch.add(orphan):
            return None
        pid = orphan.identity.pid
        number = signal.SIGTERM if failures < _PATIENT_TRIES else signal.SIGKILL
        if self._sent.get(pid) is not number:
            self._sent[pid] = number
            why = f"{_BY_ITSELF}, and it does not run as declared"
            _log.warning("%s: pid %d is sent %s: %s", launch.ref.label, pid, number.name, why)
        self._watch.signal(orphan, number)
        self._watch.remove(pid)
        text = f"pid {pid}, which served it before and has no record here, is ending"
        return Obstacle("WaitsForPort", text)


def _say_adopted(launch: Launch, child: Child, proof: str) -> None:
    _log.info("%s: adopted pid %d: %s", launch.ref.label, child.identity.pid, proof)
