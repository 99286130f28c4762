"""What a reconciler that only watches says: plans, and how far each agent node is with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from reconciler.agents.arrival import Arrival, Stage, arrivals
from reconciler.agents.nodes import AgentNodes
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Problem
from reconciler.cli.console import Console, Screen
from reconciler.core.observation import Observation
from reconciler.core.plan import Change, ObjectName, Plan
from reconciler.core.target import Outcome, Result
from reconciler.loop import Pass, Wake
from reconciler.loop.desired import Desired
from reconciler.report.nodestate import verdicts_of
from reconciler.report.plan_json import change_json, plan_json
from reconciler.report.terminal import Tone, printable, short_revision

_LOOK_S = 1.0  # how often agents are asked while some are on their way
_TONES = {
    Stage.READY: Tone.GOOD,
    Stage.WAITING: None,
    Stage.BEHIND: None,
    Stage.HELD: Tone.CHANGE,
    Stage.REFUSED: Tone.BAD,
    Stage.UNREACHABLE: Tone.BAD,
}


class ChangeSubject(NamedTuple):
    """What a change is about, in any plan."""

    target: str
    ref: ObjectRef
    object: ObjectName | None

    @classmethod
    def of(cls, change: Change) -> ChangeSubject:
        return cls(change.target, change.ref, change.object)


class ArrivalConsole(Console):
    """Says each node's way to a revision, once a step. A process that is on standby everywhere
    (`leads`) says nothing of its plans: another one carries them out, and says so."""

    def __init__(
        self,
        screen: Screen,
        output: str,
        agents: AgentNodes,
        wake: Wake,
        timeout_s: float,
        leads: Callable[[], bool],
        *,
        once: bool,
    ) -> None:
        super().__init__(screen, output)
        self._leads = leads
        self.agents = agents
        self._out = screen
        self._wake = wake
        self._timeout_s = timeout_s
        self._once = once
        self._hold_json = once and output == "json"
        self._desired: Desired | None = None
        self._since = monotonic()
        self._printed: dict[str, tuple[Stage, str]] = {}
        self._printed_silent: Collection[str] = ()
        self._timer: threading.Timer | None = None
        self._is_reported = False  # the arrival at this revision was reported
        self.first: Plan | None = None
        self.last: Plan | None = None
        self.observed: Observation | None = None
        self.arrivals: tuple[Arrival, ...] = ()
        self.unmade = False  # the last pass failed to make one of its changes
        self.made = False  # it made some: what clusters were sent is not the last state
        self.done: dict[
            ChangeSubject, Outcome
        ] = {}  # what became of changes that were made from here
        self.failed = False  # the newest revision could not be had, or is invalid

    @property
    def is_late(self) -> bool:
        """Whether the time for reaching this revision is over."""
        return monotonic() - self._since >= self._timeout_s

    def on_followed(self, desired: Desired) -> None:
        """A new revision: the agents are woken when they are looked at next."""
        self.agents.wake_with_next_observation()
        self._desired = desired
        self._since = monotonic()
        self._printed.clear()
        self._is_reported = False

    def on_planned(self, planned: Pass) -> None:
        if not self._leads():
            return
        self._desired = planned.desired
        self.last = planned.plan
        self.unmade = self.made = False
        if self._hold_json:
            self.first = self.first or self.last
        else:
            super().on_planned(replace(planned, plan=self.last))
        self._say_arrivals(planned.desired)

    def on_observed(self, observed: Observation) -> None:
        self.observed = observed

    def on_applied(self, done: Pass) -> None:
        """In clusters; what agents do is seen by looking at them."""
        if not self._leads():
            return
        made = tuple(o for o in done.outcomes if not o.change.target.startswith("node/"))
        self.unmade = any(outcome.result is Result.FAILED for outcome in made)
        self.made = any(
            outcome.result is Result.APPLIED and outcome.change.object for outcome in made
        )
        if self._hold_json:
            self.done |= {ChangeSubject.of(outcome.change): outcome for outcome in made}
        super().on_applied(replace(done, outcomes=made))

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.failed = True
        super().on_refused(revision, problems)

    def on_source_lost(self, why: str, since: float) -> None:
        self.failed = True
        super().on_source_lost(why, since)

    def _say_arrivals(self, desired: Desired) -> None:
        from agent.process.exits import PERMANENT

        assert self.observed is not None
        blocked = {ref for h in desired.assignment.holds for ref in h.services}
        self.arrivals = arrivals(
            desired.fleet.revision,
            [w for w in desired.assignment.workloads if w.ref not in blocked],
            self.observed,
            {target: verdicts_of(state) for target, state in self.agents.states.items()},
            PERMANENT,
            self.last.changes if self.last else (),
            self.last.blocked if self.last else (),
        )
        is_first = not self._printed
        for arrival in self.arrivals:
            self._say(arrival, quiet=is_first and arrival.stage is Stage.READY)
        for node, why in self.agents.asleep.items():
            self._out.say(printable(f"{node}  could not be woken, and polls later: {why}"))
        self._say_left()
        self._say_end(desired.fleet.revision)

    def _say_left(self) -> None:
        """Machines that left the fleet, and do not say what they run; what others say is blocked in
        the plan."""
        silent = {node.name: node.text for node in self.agents.left if node.state is None}
        for name in sorted(silent.keys() - self._printed_silent):
            self._out.say(printable(silent[name]), Tone.CHANGE)
        self._printed_silent = silent.keys()

    def _say(self, arrival: Arrival, *, quiet: bool) -> None:
        news = (arrival.stage, arrival.why)
        if self._printed.get(arrival.node) == news:
            return
        self._printed[arrival.node] = news
        if not quiet:
            revision = short_revision(self._desired.fleet.revision) if self._desired else ""
            text = printable(f"{arrival.node}  {arrival_text(arrival, revision)}")
            self._out.say(text, _TONES[arrival.stage])

    def _say_end(self, revision: str) -> None:
        """Once: all are there, or the time is over. Until then they are asked often."""
        late = [a for a in self.arrivals if a.stage is not Stage.READY]
        took_s = monotonic() - self._since
        if not self._once and late and not self.is_late:
            self._pass_soon()
        if self._is_reported:
            return
        if not late:
            self._is_reported = True
            who = _nodes(self.arrivals)
            text = f"{who} on {short_revision(revision)}, everything answers ({took_s:.1f} s)"
            self._out.say(text, Tone.GOOD)
        elif self.is_late:
            self.say_rest(late)

    def _pass_soon(self) -> None:
        """One timer at a time: a pass that something else woke would add another each time."""
        if self._timer is not None and self._timer.is_alive():
            return
        self._timer = threading.Timer(_LOOK_S, self._wake.pass_now)
        self._timer.daemon = True
        self._timer.start()

    def say_rest(self, late: list[Arrival]) -> None:
        """What has not arrived when the wait ends."""
        if not late or self._is_reported or self._desired is None:
            return
        self._is_reported = True
        names = "; ".join(_and_why(a) for a in late)
        revision = short_revision(self._desired.fleet.revision)
        of = f"{len(self.arrivals) - len(late)} of {len(self.arrivals)} {_word(self.arrivals)}s"
        took_s = monotonic() - self._since
        self._out.say(f"{of} ready on {revision} after {took_s:.0f} s; not {names}", Tone.BAD)

    def print_json(self, outcomes: list[Outcome]) -> None:
        """The first plan with what became of its changes, as `--once -o json` promises."""
        assert self.first is not None
        done = [
            {"change": change_json(o.change), "result": str(o.result), "message": o.message}
            for o in outcomes
        ]
        text = json.dumps(plan_json(self.first) | {"outcomes": done}, indent=2)
        self._out.out(text + "\n")


def arrival_text(arrival: Arrival, revision: str) -> str:
    """How far a node is with a revision, as a line for people."""
    match arrival.stage:
        case Stage.READY:
            return f"on {revision}, everything answers"
        case Stage.WAITING:
            return f"on {revision}; {arrival.why}"
        case Stage.UNREACHABLE:
            return f"did not answer: {arrival.why}"
        case Stage.REFUSED:
            return f"refuses {revision}: {arrival.why}"
        case Stage.HELD:
            return f"does not follow {revision}: {arrival.why}"
        case Stage.BEHIND:
            return f"not on {revision} yet: {arrival.why}"


def _and_why(arrival: Arrival) -> str:
    """Who is not there, and for what; the rest of a stage had a line of its own."""
    why = f": {arrival.why}" if arrival.stage is Stage.WAITING else ""
    return f"{arrival.node} ({arrival.stage}){why}"


def _nodes(arrivals: tuple[Arrival, ...]) -> str:
    """Nodes, or targets where clusters are among them."""
    word = _word(arrivals)
    return f"the {word} is" if len(arrivals) == 1 else f"all {len(arrivals)} {word}s are"


def _word(arrivals: tuple[Arrival, ...]) -> str:
    return "node" if all(a.target.startswith("node/") for a in arrivals) else "target"
