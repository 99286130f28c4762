"""Events and effects of one service's state machine. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from agent.process.launch import Child, Launch, Listening
from agent.process.model_state import Failure
from reconciler.core.observation import Obstacle
from reconciler.fleet.command import ServedModel

Unverified = tuple[tuple[str, Obstacle], ...]
"""Models whose bytes may not be loaded, by name."""


@dataclass(frozen=True, slots=True)
class ProcessTiming:
    """Every delay of the state machine, in seconds."""

    probe_first_s: float = 0.02  # a tiny model is ready in 0.02-0.05 s
    probe_loading_growth: float = 1.1  # readiness is noticed at most a tenth of the load time late
    probe_loading_max_s: float = 0.2  # a probe costs half a millisecond of CPU
    probe_ready_s: float = 10.0  # exits are noticed at once by other means
    probe_missed_s: float = 1.0  # after a failed probe
    misses: int = 3  # in a row, until a ready service is called NotResponding
    hung_s: float = 300.0  # without an answer, or work, until another process takes its place
    slots_s: float = 0.25  # between two counts of requests while draining
    least_drain_s: float = 0.5  # so that requests cut by a drainTimeout of 0 are still counted
    withdraw_s: float = 0.0  # shortest drain: clients learn first that the endpoint goes away
    terminate_s: float = 3.0  # llama.cpp hangs on SIGTERM with a request in flight
    kill_again_s: float = 5.0
    backoff_first_s: float = 1.0  # doubling
    backoff_max_s: float = 300.0
    backoff_refused_s: float = 30.0  # longest, where nothing was started: see exits.REFUSED
    backoff_reset_s: float = 600.0  # of being ready
    failed_loads: int = 3  # in a row, of one of many models, until it is left out


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Run:
    """This launch is wanted."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Update:
    """The description of the launch changed; the process itself need not change."""

    launch: Launch


@dataclass(frozen=True, slots=True)
class Reload:
    """This launch is wanted, and differs from the running one in these models only."""

    launch: Launch
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A user asked for a new process."""


@dataclass(frozen=True, slots=True)
class Stop:
    """No process is wanted any more."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """Result of Spawn: the process that was started, without its `unverified` models."""

    child: Child
    unverified: Unverified = ()


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """Result of Spawn: why no process was started."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended, and so have all its children."""

    reason: str
    message: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Result of AskReady. Of many models, `failures` do not load, and `silent` ones are loaded and
    do not respond. `computed_s`, where there was no answer at all: the processor time of the
    process so far."""

    question: int
    ready: bool
    reason: str = ""
    message: str = ""
    listening: Listening | None = None
    served: tuple[ServedModel, ...] = ()
    failures: tuple[Failure, ...] = ()
    silent: frozenset[str] = frozenset()
    computed_s: float | None = None
    unverified: Unverified = ()  # of many models: those that the process may not load
    may_not_wake: Obstacle | None = None  # of one model that sleeps: why it may not be loaded again


@dataclass(frozen=True, slots=True)
class SlotsAnswered:
    """Result of AskSlots: requests in flight; None if they could not be read. `computed_s` as in
    Answered."""

    question: int
    busy: int | None
    computed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Result of Rewrite: whether the process read its files, and which models it loads now. Its
    `unverified` models were left out."""

    question: int
    done: bool
    message: str = ""
    loading: tuple[str, ...] = ()
    unverified: Unverified = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; sent when `Unit.wake_at` is reached."""


@dataclass(frozen=True, slots=True)
class Woke:
    """The machine slept or a clock was set: results of probes in progress are void."""


Event = (
    Run
    | Update
    | Reload
    | RestartRequested
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


# Effects: everything that a step can do to the world.


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the process, without the models that are left out."""

    launch: Launch
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Signal:
    child: Child
    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class AskReady:
    """Does the live process own its port and serve its model?

    `known` is the proof of an earlier check. A process that `was_ready`, in this run of the agent
    or an earlier one, need not prove again that its model loads.
    """

    question: int
    launch: Launch
    child: Child
    known: Listening | None
    was_ready: bool = False


@dataclass(frozen=True, slots=True)
class AskSlots:
    """How many requests are in flight, for these models; None: for all of them."""

    question: int
    launch: Launch
    child: Child
    models: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Write the launch's files again, without the models that are left out, and have the process
    read them. Then load `up` and the models to be preloaded, or any model if there are none of
    these. `loaded` models are not touched, so they stay even if their files were changed."""

    question: int
    launch: Launch
    child: Child
    without: frozenset[str]
    up: tuple[str, ...]
    loaded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Save:
    """Write the unit's record."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the unit's record."""


@dataclass(frozen=True, slots=True)
class Note:
    """One line about a change that was made, for the log and the notices."""

    text: str


Effect = Spawn | Signal | AskReady | AskSlots | Rewrite | Save | Forget | Note
