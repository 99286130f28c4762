"""A run that ends by itself: one pass, then the wait until everything that should run answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic

from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Problem
from reconciler.api.quantity import format_duration
from reconciler.cli.console import Console, Screen
from reconciler.cli.fleet import exit_of
from reconciler.console.edge import Exit
from reconciler.core.moves import MAY_END
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Plan
from reconciler.core.target import Outcome
from reconciler.loop import Loop, Pass
from reconciler.loop.desired import Desired
from reconciler.report.plan_json import change_json, plan_json
from reconciler.report.terminal import Tone, printable

# Of what a run waited for, and what goes on without it.
_GOES_ON = {
    "Downloading": "; what was fetched is kept, and the next run goes on from there",
    "Loading": "; it goes on loading: `fleet-agent status` says when it is ready",
}

_Waiting = Mapping[ObjectRef, Instance | None]


class Recorder(Console):
    """A Console that also keeps the first plan and every outcome, for --once."""

    def __init__(
        self,
        screen: Screen,
        output: str,
        on_ready: Callable[[Instance], None] | None,
        on_plan: Callable[[Plan], None],
        on_refused: Callable[[], None],
        *,
        quiet: bool,
    ) -> None:
        super().__init__(screen, output, on_ready)
        self._screen_out = screen
        self._hold_json = quiet and output == "json"
        self.first: Plan | None = None
        self.last: Plan | None = None
        self.observed: Observation | None = None
        self.outcomes: list[Outcome] = []
        self.failed = False  # the newest revision could not be had, or is invalid
        self._on_plan = on_plan
        self._on_refused = on_refused

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.failed = True
        super().on_refused(revision, problems)
        self._on_refused()

    def on_source_lost(self, why: str, since: float) -> None:
        self.failed = True
        super().on_source_lost(why, since)

    def on_planned(self, planned: Pass) -> None:
        self.last = planned.plan
        self.first = self.first or self.last
        if not self._hold_json:
            super().on_planned(planned)
        self._on_plan(self.last)

    def on_applied(self, done: Pass) -> None:
        self.outcomes += done.outcomes
        super().on_applied(done)

    def on_observed(self, observed: Observation) -> None:
        self.observed = observed
        super().on_observed(observed)

    def say_missing(self, waiting: _Waiting, timeout_s: float) -> None:
        """At the end of a run that waited in vain: what for, a line a service."""
        messages = {o.change.ref: o.message for o in self.outcomes if o.message}
        for ref, instance in waiting.items():
            why = messages.get(ref) or "not there yet"
            if instance is not None:
                why = ": ".join(filter(None, (instance.reason, instance.message)))
            more = _GOES_ON.get(instance.reason if instance else "", "")
            self._screen_out.say(
                printable(
                    f"{ref.label}  not as declared after {format_duration(round(timeout_s))}"
                    f" (--timeout): {why}{more}"
                ),
                Tone.BAD,
            )

    def print_once(self) -> None:
        """The plan with what became of its changes, as `--once -o json` promises."""
        if self._hold_json and self.first is not None:
            done = [
                {"change": change_json(o.change), "result": str(o.result), "message": o.message}
                for o in self.outcomes
            ]
            text = json.dumps(plan_json(self.first) | {"outcomes": done}, indent=2)
            self._screen_out.out(text + "\n")


def once(loop: Loop, console: Recorder, timeout_s: float) -> int:
    """One pass, then wait until everything that should run answers."""
    loop.fetch()
    if loop.desired is None:
        return exit_of(loop.verdict) or Exit.FAILED
    deadline = monotonic() + timeout_s
    while not loop.wake.stopped:
        loop.sync()
        assert console.last is not None
        assert console.observed is not None
        waiting = _waiting(loop.desired, console.last, console.observed)
        is_over = monotonic() >= deadline
        if not waiting or is_over or all(map(is_final, waiting.values())):
            if is_over:
                console.say_missing(waiting, timeout_s)
            console.print_once()
            if console.failed:
                return Exit.FAILED
            if (code := exit_of(loop.verdict)) is not None:
                return code
            return Exit.BLOCKED if waiting or console.last.blocked else Exit.OK
        loop.wake.wait(min(1.0, max(0.0, deadline - monotonic())))
    return Exit.INTERRUPTED


def _waiting(desired: Desired, plan: Plan, observed: Observation) -> _Waiting:
    """What is not as it should be yet: an instance that is not ready, None for one to come."""
    blocked = {ref for item in plan.blocked for ref in (item.ref, *item.holds)}
    wanted = {
        w.ref: w
        for w in desired.assignment.workloads
        if (state := observed.targets.get(w.target))
        and not (w.suspended or w.ref in blocked or state.keeps_stopped(w))
    }
    there = {i.ref: i for i in observed.instances}
    late = {ref: there.get(ref) for ref in wanted}
    waiting = {ref: i for ref, i in late.items() if i is None or not i.ready}
    pending = {c.ref: there.get(c.ref) for c in plan.changes if not c.is_shown_only}
    return (
        waiting
        or {ref: i and _as_it_comes(i) for ref, i in pending.items()}
        or _staying(plan, there)
        or _ending(observed)
    )


def _staying(plan: Plan, there: Mapping[ObjectRef, Instance]) -> _Waiting:
    """Copies that stay for a reason that may end by itself."""
    return {
        item.ref: replace(there[item.ref], ready=False, reason=item.reason, message=item.message)
        for item in plan.blocked
        if item.home is not None and item.reason in MAY_END and item.ref in there
    }


def _ending(observed: Observation) -> _Waiting:
    """Services that were taken away, while their process lives."""
    return {
        ref: Instance(ref, target, "", {}, "", None, None, False, "Stopping", message)
        for target, state in observed.targets.items()
        for ref, message in state.leaving.items()
    }


def _as_it_comes(instance: Instance) -> Instance | None:
    """Its successor, which waits for something; None where nothing is known of that."""
    if instance.pending is None:
        return None
    pending = instance.pending
    return replace(instance, ready=False, reason=pending.reason, message=pending.message)


def is_final(instance: Instance | None) -> bool:
    """Whether waiting longer cannot help: only other bytes or another commit will. What a process
    failed for is not final while its successor waits for something else, such as its model."""
    from agent.process.exits import PERMANENT

    waits = instance and (instance.pending or instance)
    return waits is not None and waits.reason in PERMANENT
