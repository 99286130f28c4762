"""The state of one service on this node. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.process.events import AskReady, Effect, ProcessTiming
from agent.process.hang import Stillness
from agent.process.launch import Child, Launch, Listening, Phase
from agent.process.model_state import Quarantined, Reloading
from agent.system.clock import Moment
from reconciler.fleet.command import ServedModel


@dataclass(frozen=True, slots=True)
class Unit:
    """One service on this node. Times are monotonic, except `since`.

    `launch` is what the process was started from (or will be); `successor` replaces it once it has
    ended. A stopping unit without a successor is then forgotten.
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
    ready_since: float | None = (
        None  # epoch: of one that was adopted, and may be ready all the time
    )
    drain_until: float = 0.0
    withdrawn_at: float = 0.0  # while draining: from then on clients know that the endpoint is gone
    interval_s: float = 0.0  # between two probes while loading
    question: int = 0  # number of the last question asked
    asking: bool = False  # its result is still due
    listening: Listening | None = None  # proof from when it became ready
    served: tuple[ServedModel, ...] = ()  # state of its models in the last result
    missed: int = 0  # probes in a row, since it was ready
    still: Stillness | None = None  # None: its last answer came, or nothing is known
    busy: int | None = None  # requests in flight, by the last count while draining
    reloading: Reloading | None = None
    quarantined: tuple[Quarantined, ...] = ()
    silent: tuple[tuple[str, int], ...] = ()  # loaded models, and failed probes in a row

    @property
    def is_wanted(self) -> bool:
        return not self.phase.is_stopping or self.successor is not None

    def is_ready(self, timing: ProcessTiming) -> bool:
        answers = self.phase is Phase.READY or (self.phase is Phase.RELOADING and self.was_ready)
        return answers and self.missed < timing.misses

    @property
    def intended(self) -> Launch:
        """The launch that the process has, or is about to have."""
        if self.reloading is None:
            return self.launch
        return self.reloading.then.launch if self.reloading.then else self.reloading.launch

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(model.name for model in self.quarantined)


def first_question(child: Child) -> int:
    """From here on the questions about a process are numbered. No two processes share numbers: a
    late answer may be about one that ended, and whose unit is forgotten."""
    return child.identity.pid << 32


Step = tuple[Unit | None, tuple[Effect, ...]]


def asked(unit: Unit, wake_at: float | None) -> Unit:
    """The unit with one question more: its answer is the only one that counts from now on."""
    return replace(unit, question=unit.question + 1, asking=True, wake_at=wake_at)


def ask_ready(unit: Unit) -> Step:
    """Ask, and wake only for the answer."""
    unit = asked(unit, None)
    assert unit.child is not None
    ask = AskReady(unit.question, unit.launch, unit.child, unit.listening, unit.was_ready)
    return unit, (ask,)


def with_reason(unit: Unit, reason: str, message: str, now: Moment) -> Unit:
    """Set reason and message; `since` changes only if the reason does."""
    since = unit.since if reason == unit.reason else now.wall
    return replace(unit, reason=reason, message=message, since=since)


def drain_times(unit: Unit, now: Moment) -> tuple[float, float]:
    """Since when it drains, and until when at most, since the epoch; to the minute, so that two
    clocks that drift apart are no news."""
    left = now.wall + unit.drain_until - now.monotonic
    return unit.since, round(left / 60) * 60
