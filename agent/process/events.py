"""What can happen to one service's process, and what can be done about it. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from agent.process.launch import Child, Launch, Listening
from reconciler.workload import ServedModel


@dataclass(frozen=True, slots=True)
class Timing:
    """Every delay of the machine, in seconds."""

    probe_first_s: float = 0.02  # a tiny model is ready in 0.02-0.05 s
    probe_loading_growth: float = 1.1  # so what is ready waits a tenth of its own time to be seen
    probe_loading_max_s: float = 0.2  # a question costs half a millisecond of CPU
    probe_ready_s: float = 10.0  # deaths are seen at once by other means
    probe_missed_s: float = 1.0  # after a missed answer
    misses: int = 3  # in a row, until a ready service is called NotResponding
    slots_s: float = 0.25  # between two questions while draining
    least_drain_s: float = 0.5  # so that what a drainTimeout of 0 cuts is still counted
    withdraw_s: float = 0.0  # a drain lasts so long at least: clients first hear that it goes
    terminate_s: float = 3.0  # llama.cpp hangs on SIGTERM with a request in flight
    kill_again_s: float = 5.0
    backoff_first_s: float = 1.0  # doubling
    backoff_max_s: float = 300.0
    backoff_refused_s: float = 30.0  # longest, where nothing was started: see exits.REFUSED
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
