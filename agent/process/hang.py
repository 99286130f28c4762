"""Whether a process hangs: it answers and computes nothing. Pure, a part of supervisor.py.

Silence alone proves nothing: llama.cpp's server has a thread for each request, also for one that
waits for a slot, and while all are taken it answers no probe and goes on writing. One that works
uses the processor, also where a GPU does most of it; one that hangs does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.process.events import ProcessTiming
from agent.system.clock import Moment

_STILL_SHARE = 0.001  # of one core, for what only waits
_STILL_S = 0.05  # the kernel counts in hundredths
_LATE_S = 10.0  # longer than a question takes


@dataclass(frozen=True, slots=True)
class Stillness:
    """Questions in a row without an answer, during all of which the process computed nothing.
    `computed_s` is what it had computed before, `at` the time of the last one."""

    questions: int
    for_s: float
    at: float
    computed_s: float

    def is_hung(self, timing: ProcessTiming) -> bool:
        """Whether it is certain enough to wait for nothing of it."""
        return self.questions >= timing.misses

    def is_over(self, timing: ProcessTiming) -> bool:
        """Whether it has lasted long enough for another process to take its place."""
        return self.is_hung(timing) and self.for_s >= timing.hung_s


def still(
    before: Stillness | None, computed_s: float | None, now: Moment, timing: ProcessTiming
) -> Stillness | None:
    """After one more question without an answer. `computed_s` is the processor time of the process
    so far; None: it answered after all, or that cannot be seen."""
    if computed_s is None:
        return None
    if before is None:
        return Stillness(1, 0.0, now.monotonic, computed_s)
    # Whatever stopped us for an hour may have stopped the process as well.
    passed_s = min(now.monotonic - before.at, 2 * timing.probe_ready_s + _LATE_S)
    for_s = before.for_s + passed_s
    if computed_s - before.computed_s > _STILL_SHARE * for_s + _STILL_S:
        return Stillness(1, 0.0, now.monotonic, computed_s)
    return Stillness(before.questions + 1, for_s, now.monotonic, before.computed_s)


def what_follows(stillness: Stillness | None, timing: ProcessTiming) -> str:
    """What becomes of a process that does not answer, for people."""
    if stillness is None:
        return "left running"
    if not stillness.is_hung(timing):
        return "left running, as it computes"
    return f"it computes nothing, and is started anew after {timing.hung_s:g} s of that"


def ended_because(timing: ProcessTiming) -> str:
    return f"it gave no answer and used no processor for {timing.hung_s:g} s"
