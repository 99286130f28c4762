"""How one service on this node stands. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from agent.clock import Moment
from agent.process.events import Effect, Reload, Timing
from agent.process.launch import Child, Launch, Listening, Phase
from reconciler.workload import ServedModel


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
    withdrawn_at: float = 0.0  # while draining: from then on nobody new is sent here
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
