"""What can happen to one service's process, what can be done about it, and how it stands. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from agent.clock import Moment
from agent.launch import Child, Launch, Listening, Phase
from reconciler.workload import ServedModel


@dataclass(frozen=True, slots=True)
class Timing:
    """Every delay of the machine, in seconds."""

    probe_first_s: float = 0.05  # a small model is ready in 0.03-0.05 s
    probe_loading_max_s: float = 0.5  # doubling from probe_first_s
    probe_ready_s: float = 10.0  # deaths are seen at once by other means
    probe_missed_s: float = 1.0  # after a missed answer
    misses: int = 3  # in a row, until a ready service is called NotResponding
    slots_s: float = 0.25  # between two questions while draining
    least_drain_s: float = 0.5  # so that what a drainTimeout of 0 cuts is still counted
    terminate_s: float = 3.0  # llama.cpp hangs on SIGTERM with a request in flight
    kill_again_s: float = 5.0
    backoff_first_s: float = 1.0  # doubling
    backoff_max_s: float = 300.0
    backoff_memory_s: float = 30.0  # nobody says when other programs give memory back
    backoff_reset_s: float = 600.0  # of being ready


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Run:
    """This launch is wanted."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Update:
    """What the fleet says changed, without a need to touch the process."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Restart:
    """A person wants a new process."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing is wanted any more."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """Answer to Spawn: there is a process."""

    child: Child


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """Answer to Spawn: there is none, and why."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process is gone, and so is everything that it started."""

    reason: str
    message: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to AskReady."""

    question: int
    ready: bool
    reason: str = ""
    message: str = ""
    listening: Listening | None = None
    served: tuple[ServedModel, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotsAnswered:
    """Answer to AskSlots: requests in flight; None where that could not be read."""

    question: int
    busy: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on; sent when `Unit.wake_at` is reached."""


@dataclass(frozen=True, slots=True)
class Woke:
    """The machine slept or a clock was set: answers under way mean nothing."""


Event = (
    Run
    | Update
    | Restart
    | Stop
    | Spawned
    | SpawnFailed
    | Exited
    | Answered
    | SlotsAnswered
    | Tick
    | Woke
)


# Effects: the whole list of what a step can do to the world.


@dataclass(frozen=True, slots=True)
class Spawn:
    launch: Launch


@dataclass(frozen=True, slots=True)
class Signal:
    child: Child
    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class AskReady:
    """Does the live process own its port and serve its model? `known` says that it did before;
    one that `was_ready`, also in an earlier life of ours, need not prove that its model loads."""

    question: int
    launch: Launch
    child: Child
    known: Listening | None
    was_ready: bool = False


@dataclass(frozen=True, slots=True)
class AskSlots:
    question: int
    launch: Launch


@dataclass(frozen=True, slots=True)
class Save:
    """Write the unit's record as it is now."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the unit's record."""


@dataclass(frozen=True, slots=True)
class Note:
    """One line for people about a change that was made."""

    text: str


Effect = Spawn | Signal | AskReady | AskSlots | Save | Forget | Note


@dataclass(frozen=True, slots=True)
class Unit:
    """One service on this node. Times are monotonic but for `since`.

    `launch` is what the process was started from (or will be); `successor` takes its place once it
    is gone. A stopping unit without one is forgotten then.
    """

    launch: Launch
    phase: Phase
    since: float
    reason: str
    message: str = ""
    child: Child | None = None
    successor: Launch | None = None
    failures: int = 0  # in a row
    exit_code: int | None = None  # of the last process that ended by itself
    start_seconds: float | None = None
    wake_at: float | None = None  # when the next Tick is due
    spawned_at: float | None = None  # None: spawned in an earlier life
    ready_at: float | None = None
    was_ready: bool = False  # the process was ready once: requests may be in flight
    drain_until: float = 0.0
    interval_s: float = 0.0  # between two probes while loading
    question: int = 0  # number of the last question asked
    asking: bool = False  # its answer is still due
    listening: Listening | None = None  # since it was ready
    served: tuple[ServedModel, ...] = ()  # what it answered last for its models
    missed: int = 0  # probes in a row, since it was ready
    busy: int | None = None  # requests in flight, as last heard while draining

    @property
    def is_wanted(self) -> bool:
        return not self.phase.is_stopping or self.successor is not None

    def is_ready(self, timing: Timing) -> bool:
        return self.phase is Phase.READY and self.missed < timing.misses


Step = tuple[Unit | None, tuple[Effect, ...]]


def said(unit: Unit, reason: str, message: str, now: Moment) -> Unit:
    """Set reason and message; `since` moves only when the reason does."""
    since = unit.since if reason == unit.reason else now.wall
    return replace(unit, reason=reason, message=message, since=since)
