"""How one process is stopped: drain, SIGTERM, SIGKILL. Pure, a part of supervisor.py.

llama.cpp hangs on SIGTERM while a request is in flight, so we wait for idle slots first, and count
the requests that the deadline cuts.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from agent.process.drain_text import describe_cut, describe_drain
from agent.process.events import AskSlots, Effect, Note, ProcessTiming, Save, Signal, SlotsAnswered
from agent.process.hang import ended_because, still
from agent.process.launch import Launch, Phase
from agent.process.unit import Step, Unit, asked, drain_times, with_reason
from agent.system.clock import Moment

_HUNG = "answers and computes nothing: ended without waiting for requests"


def begin_stop(unit: Unit, successor: Launch | None, now: Moment, timing: ProcessTiming) -> Step:
    """Drain first, where requests may be in flight and can be counted; then terminate."""
    # Models that the process may not have read yet stay in the record, in case we end before it
    # does.
    unread = unit.reloading if unit.reloading and unit.reloading.is_due_again else None
    unit = replace(unit, successor=successor, reloading=unread, asking=False, busy=None)
    unit = with_reason(unit, "Replacing" if successor else "Stopping", "", now)
    counts = unit.launch.command.probe.counts_requests
    if not unit.was_ready or not (counts or timing.withdraw_s):
        return _terminate(unit, now, timing, Save())
    if unit.still is not None and unit.still.is_hung(timing):
        return _terminate(replace(unit, message=_HUNG), now, timing, Save(), Note(_HUNG))
    drain_s = max(unit.launch.drain_timeout_s, timing.least_drain_s) if counts else 0.0
    ends = now.monotonic + max(drain_s, timing.withdraw_s)
    withdrawn_at = now.monotonic + timing.withdraw_s
    unit = replace(unit, phase=Phase.DRAINING, drain_until=ends, withdrawn_at=withdrawn_at)
    if not counts:
        return replace(unit, wake_at=ends), (Save(), Note("withdrawn"))
    unit, ask = ask_slots(unit)
    return unit, (Save(), Note("draining"), ask)


def end_hung(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    """Another process takes its place, after the pause of one that failed."""
    text = f"{ended_because(timing)}: ended, to be started anew"
    unit = with_reason(replace(unit, successor=unit.intended), "NotResponding", text, now)
    return _terminate(unit, now, timing, Save(), Note(text))


def slots_answered(unit: Unit, event: SlotsAnswered, now: Moment, timing: ProcessTiming) -> Step:
    """Take a count of the requests in flight; None if it could not be read."""
    if not unit.asking or event.question != unit.question or unit.phase is not Phase.DRAINING:
        return unit, ()
    busy = event.busy if event.busy is not None else unit.busy  # a failed reading is not 0
    stillness = None if event.busy is not None else still(unit.still, event.computed_s, now, timing)
    unit = replace(unit, asking=False, busy=busy, still=stillness)
    if stillness is not None and stillness.is_hung(timing):
        return _terminate(replace(unit, message=_HUNG), now, timing, Note(_HUNG))
    if event.busy == 0 and now.monotonic >= unit.withdrawn_at:
        return _terminate(replace(unit, message=""), now, timing)
    if now.monotonic >= unit.drain_until:
        return end_drain(unit, now, timing)
    message = "" if busy == 0 else describe_drain(busy, *drain_times(unit, now))
    wake_at = min(now.monotonic + timing.slots_s, unit.drain_until)
    return replace(unit, message=message, wake_at=wake_at), ()


def end_drain(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    """The deadline of the drain has passed: log what it cuts."""
    if not unit.launch.command.probe.counts_requests:
        # it only waited until clients know that the endpoint is gone
        return _terminate(unit, now, timing)
    text = describe_cut(unit.busy, unit.launch.drain_timeout_s)
    return _terminate(replace(unit, message=text), now, timing, Note(text))


def kill(unit: Unit, now: Moment, timing: ProcessTiming) -> Step:
    """Send SIGKILL: SIGTERM, or the last SIGKILL, had no effect."""
    assert unit.child is not None
    child = unit.child
    text = "did not end by SIGTERM: killed"
    if unit.phase is Phase.KILLING:
        text = f"pid {child.identity.pid} survives SIGKILL: it hangs in the kernel"
    wake_at = now.monotonic + timing.kill_again_s
    unit = replace(unit, phase=Phase.KILLING, wake_at=wake_at, message=text)
    return unit, (Note(text), Signal(child, signal.SIGKILL))


def _terminate(unit: Unit, now: Moment, timing: ProcessTiming, *before: Effect) -> Step:
    assert unit.child is not None
    end = Signal(unit.child, signal.SIGTERM)
    wake_at = now.monotonic + timing.terminate_s
    return replace(unit, phase=Phase.TERMINATING, wake_at=wake_at, asking=False), (*before, end)


def ask_slots(unit: Unit) -> tuple[Unit, Effect]:
    """Ask, and wake at the deadline even without a result."""
    unit = asked(unit, unit.drain_until)
    assert unit.child is not None
    return unit, AskSlots(unit.question, unit.launch, unit.child)
