"""What can happen to one service's process, what can be done about it, and how it stands. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import StrEnum

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
    failed_loads: int = 3  # of one of many models, in a row, until it is left out


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
class Reload:
    """This launch is wanted, and differs from what runs in these models only."""

    launch: Launch
    models: frozenset[str]


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
class Failure:
    """One of many models does not load: how often in a row, and why."""

    name: str
    times: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to AskReady. Of many models, `failures` do not load, and `silent` are loaded and do
    not answer."""

    question: int
    ready: bool
    reason: str = ""
    message: str = ""
    listening: Listening | None = None
    served: tuple[ServedModel, ...] = ()
    failures: tuple[Failure, ...] = ()
    silent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SlotsAnswered:
    """Answer to AskSlots: requests in flight; None where that could not be read."""

    question: int
    busy: int | None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Answer to Rewrite: whether the process took its files, and the models that it loads now."""

    question: int
    done: bool
    message: str = ""
    loading: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on; sent when `Unit.wake_at` is reached."""


@dataclass(frozen=True, slots=True)
class Woke:
    """The machine slept or a clock was set: answers under way mean nothing."""


Event = (
    Run
    | Update
    | Reload
    | Restart
    | Stop
    | Spawned
    | SpawnFailed
    | Exited
    | Answered
    | SlotsAnswered
    | Rewritten
    | Tick
    | Woke
)


# Effects: the whole list of what a step can do to the world.


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start it, without the models that are left out."""

    launch: Launch
    without: frozenset[str] = frozenset()


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
    """How many requests are in flight? Where one process serves many: for these models; None: for
    all of them."""

    question: int
    launch: Launch
    models: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Write the launch's files anew, without the models that are left out, let the process read
    them, and load what should be up: `up`, what is to be preloaded, or anything at all."""

    question: int
    launch: Launch
    child: Child
    without: frozenset[str]
    up: tuple[str, ...]


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


Effect = Spawn | Signal | AskReady | AskSlots | Rewrite | Save | Forget | Note


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A model that failed to load too often, and is left out until its inputs change, somebody
    restarts the service or, where `until` (seconds since the epoch) is given, until then."""

    name: str
    reason: str
    message: str
    until: float | None = None


class Stage(StrEnum):
    """How far a reload is."""

    DUE = "due"  # begun in an earlier life of ours: done again once the process answers
    DRAINING = "draining"  # waits for the requests of the models concerned
    WRITING = "writing"  # the process reads its files: nothing else may write them
    LOADING = "loading"  # waits for the models that were told to load


@dataclass(frozen=True, slots=True)
class Reloading:
    """A change of single models of a living process. `launch` is what it will be; `up` are the
    models concerned that were loaded before; `then` is a reload asked for meanwhile."""

    launch: Launch
    models: frozenset[str]
    stage: Stage
    up: tuple[str, ...] = ()
    loading: tuple[str, ...] = ()
    then: Reload | None = None

    @property
    def is_due_again(self) -> bool:
        """Whether a later life of ours must do it again: the launch counts as the running one, and
        its process may not have read it."""
        return self.stage in (Stage.DUE, Stage.WRITING)


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
    reloading: Reloading | None = None
    quarantined: tuple[Quarantined, ...] = ()
    silent: tuple[tuple[str, int], ...] = ()  # loaded models, and probes in a row without an answer

    @property
    def is_wanted(self) -> bool:
        return not self.phase.is_stopping or self.successor is not None

    def is_ready(self, timing: Timing) -> bool:
        answers = self.phase is Phase.READY or (self.phase is Phase.RELOADING and self.was_ready)
        return answers and self.missed < timing.misses

    @property
    def meant(self) -> Launch:
        """What its process is, or is about to be."""
        if self.reloading is None:
            return self.launch
        return self.reloading.then.launch if self.reloading.then else self.reloading.launch

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(model.name for model in self.quarantined)


Step = tuple[Unit | None, tuple[Effect, ...]]


def said(unit: Unit, reason: str, message: str, now: Moment) -> Unit:
    """Set reason and message; `since` moves only when the reason does."""
    since = unit.since if reason == unit.reason else now.wall
    return replace(unit, reason=reason, message=message, since=since)
