"""Every agent node of a fleet as one Target that is only observed: agents pull what they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.agents.client import STALE_AFTER_S, AgentAnswer, AgentClient
from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.left import LeftNode, OurFleet
from reconciler.agents.left_nodes import LeftNodes
from reconciler.agents.parallel import ask_all
from reconciler.api.errors import AgentError
from reconciler.api.fleetnode import Agent, FleetNode
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance, Observation, TargetState
from reconciler.core.plan import Change
from reconciler.core.target import Outcome, Result
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import known_by
from reconciler.fleet.workload import Workload
from reconciler.memo import Memo, Same
from reconciler.report.nodestate import read_node_state
from reconciler.report.spans import span

T = TypeVar("T")

_TOO_LATE = "no answer in time"
_GRACE_S = 0.2  # for an answer that came at its deadline to be counted


@dataclass(frozen=True, slots=True)
class AgentTimeouts:
    """How long one agent is waited for, and all of them together: many get more, so that none that
    answers counts as unreachable because there are others."""

    each_s: float = 3.0
    all_s: float = 5.0
    share_s: float = 0.01  # for each agent beyond the first two hundred

    def together_s(self, agents: int) -> float:
        return self.all_s + self.share_s * max(0, agents - 200)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What is known of one agent: its newest answer, or why there is none."""

    answer: AgentAnswer | None
    message: str = ""
    seen_at: float | None = None


_PATIENCE = AgentTimeouts()
_NO_URL = (
    "its FleetNode states no spec.agent.url, so it cannot be asked from here: state one, or use"
    " --local on the machine itself"
)
Here = Callable[[Fleet, Iterable[Workload]], Mapping[str, AgentReport]]
"""What this machine knows of itself, by its node's name; empty where it is none of the fleet."""


class AgentNodes:
    """An Observer of all agent nodes; `apply` skips. One thread uses it."""

    def __init__(
        self,
        credentials: AgentCredentials,
        last_seen: LastSeen,
        patience: AgentTimeouts = _PATIENCE,
        here: Here = lambda _, __: {},
        ours: OurFleet = OurFleet(),  # noqa: B008 - frozen
    ) -> None:
        """`here` is asked of a node that gave no answer and is this very machine; `ours` knows the
        machines that were of this fleet."""
        self._here = here
        self._fleet: Fleet | None = None
        self._patience = patience
        self._credentials = credentials
        self._last_seen = last_seen
        self._left = LeftNodes(last_seen, credentials, ours)
        self._clients: dict[str, AgentClient] = {}
        self._silent: dict[str, str] = {}  # node without a url -> why it is not asked
        self._reports: dict[str, AgentReport] = {}
        self._elsewhere: frozenset[str] = frozenset()  # without a url, and known all the same
        self._read: Memo[str, tuple[TargetState, tuple[Instance, ...]]] = Memo()
        self._wakes = False
        self.asleep: Mapping[str, str] = {}  # who could not be woken the last time, and why

    def follow(self, fleet: Fleet) -> None:
        """From now on these are the nodes."""
        self._fleet = fleet
        agents = {n.metadata.name: n.spec.agent for n in fleet.all(FleetNode) if n.spec.agent}
        self._clients = {
            name: AgentClient(name, agent.url, agent.cert_sha256, self._credentials)
            for name, agent in agents.items()
            if agent.url is not None
        }
        self._silent = {name: _NO_URL for name in agents if name not in self._clients}
        self._reports = {name: r for name, r in self._reports.items() if name in agents}
        self._read.keep(agents)
        self._left.follow(fleet)

    def client(self, node: str) -> AgentClient | None:
        """Who asks that node's agent; None: its FleetNode states no address."""
        return self._clients.get(node)

    @property
    def left(self) -> tuple[LeftNode, ...]:
        """Machines that left the fleet, and what they ran when they were asked last."""
        return self._left.nodes

    def ask_left(self, left: Mapping[str, tuple[Agent, tuple[str, ...]]]) -> None:
        """Also these, which earlier revisions declared, with what those placed there."""
        news = self._left.heard_of(left)
        if news:
            self._note_left(self._ask_each(self._asked, {n: self._left.clients[n] for n in news}))
            self._last_seen.save()

    @property
    def states(self) -> Mapping[str, NodeState]:
        """The answers of the agents that gave one the last time, by target."""
        return {f"node/{n}": r.answer.state for n, r in self._reports.items() if r.answer}

    def observe(self, workloads: Iterable[Workload] = ()) -> Observation:
        """All agents, at once. One that gives no good answer is unreachable, and why."""
        self._ask()
        here = self._here(self._fleet, workloads) if self._fleet and self.silent else {}
        return self.merge({name: report for name, report in here.items() if name in self.silent})

    @property
    def silent(self) -> Collection[str]:
        """Nodes that gave no answer the last time; those that cannot be asked are among them."""
        return [name for name, report in self._reports.items() if report.answer is None]

    def merge(self, reports: Mapping[str, AgentReport]) -> Observation:
        """The last observation, with reports from elsewhere of nodes that gave no answer. A node
        with a url keeps the reason why it did not, until something is known of what it runs."""
        better = {n: r for n, r in reports.items() if r.answer is not None or n in self._silent}
        self._reports |= better
        seen = (n for n, r in better.items() if r.seen_at is not None)
        self._elsewhere |= frozenset(seen) & self._silent.keys()
        return self._observation()

    def _observation(self) -> Observation:
        targets: dict[str, TargetState] = {}
        instances: list[Instance] = []
        for name, report in sorted(self._reports.items()):
            target = f"node/{name}"
            if report.answer is None:
                targets[target] = TargetState(target, False, report.seen_at, report.message)
                continue
            state, running = self._read_state(name, report.answer.state)
            targets[target] = replace(
                state,
                seen_at=report.seen_at,
                message=report.message,
                cached=state.cached | _in_use(running),
            )
            instances += running
        return Observation(targets, tuple(instances))

    def _read_state(self, name: str, state: NodeState) -> tuple[TargetState, tuple[Instance, ...]]:
        """Read once: an agent without news answers what it answered before."""
        return self._read.find(name, (Same(state),), lambda: read_node_state(state))

    def apply(self, change: Change) -> Outcome:
        return Outcome(change, Result.SKIPPED, "its agent does it on its own")

    def wake_with_next_observation(self) -> None:
        """Each agent is woken once it has reported what it ran before: a dead one delays none."""
        self._wakes = True

    @property
    def unasked(self) -> Collection[str]:
        """Nodes that cannot be asked nor are known from elsewhere: waiting for them cannot help."""
        return self._silent.keys() - self._elsewhere

    def _ask(self) -> None:
        wakes, self._wakes = self._wakes, False
        self._elsewhere = frozenset()
        asleep: dict[str, str] = {}

        def ask(client: AgentClient, deadline: float) -> AgentAnswer | str:
            answer = self._asked(client, deadline)
            try:
                if wakes and isinstance(answer, AgentAnswer):
                    client.wake(deadline)
            except AgentError as error:
                asleep[client.node] = str(error)
            return answer

        clients = {**self._clients, **self._left.clients}
        answers = self._ask_each(ask, clients)
        now = time.time()
        for name, client in self._clients.items():
            before = self._last_seen.get(name, client.url)
            late = f"{client.url}: no answer within {self._together_s:g} s"
            match answers.get(name, late):
                case AgentAnswer() as answer:
                    seen_at = now - answer.age_s
                    self._left.declared(client, answer, seen_at)
                    self._reports[name] = AgentReport(answer, _stale(answer), seen_at)
                case why:
                    self._reports[name] = AgentReport(None, why, before)
        for name, why in self._silent.items():
            self._reports[name] = AgentReport(None, why)
        self._note_left({name: answers.get(name, _TOO_LATE) for name in self._left.clients})
        self._last_seen.save()
        self.asleep = dict(asleep)

    def _asked(self, client: AgentClient, deadline: float) -> AgentAnswer | str:
        known = self._reports.get(client.node)
        try:
            return client.state(deadline, known.answer if known else None)
        except AgentError as error:
            return str(error)

    def _note_left(self, answers: Mapping[str, AgentAnswer | str]) -> None:
        for name, answer in answers.items():
            self._left.note(name, answer)

    def _ask_each(
        self, ask: Callable[[AgentClient, float], T], clients: Mapping[str, AgentClient]
    ) -> dict[str, T]:
        """Those that answered lately first: later all threads may be waiting for dead ones."""
        deadline = time.monotonic() + self._together_s
        first = sorted(
            clients.values(),
            key=lambda c: -(self._last_seen.get(c.node, c.url) or 0.0),
        )

        def question(client: AgentClient) -> Callable[[], T]:
            return lambda: ask(client, self._until(deadline))

        return ask_all({client.node: question(client) for client in first}, deadline)

    @property
    def _together_s(self) -> float:
        return self._patience.together_s(len(self._clients))

    def _until(self, deadline: float) -> float:
        """When an agent that is asked now is given up: early enough for that to be counted."""
        return min(deadline, time.monotonic() + self._patience.each_s) - _GRACE_S


def _in_use(instances: Iterable[Instance]) -> frozenset[str]:
    """Models that processes run from: they are there, whether or not the store was listed yet."""
    return frozenset(
        known
        for instance in instances
        if instance.pid is not None
        for known in known_by(instance.inputs)
    )


def _stale(answer: AgentAnswer) -> str:
    if answer.age_s < STALE_AFTER_S:
        return ""
    return (
        f"its agent answers, and has not looked at its node for {span(answer.age_s)}:"
        " see its log, or restart fleet-agent (models keep running)"
    )
