"""Every agent node of a fleet as one Target that is only looked at: agents pull what they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from reconciler.agents.client import STALE_AFTER_S, AgentClient, Answer
from reconciler.agents.credentials import Credentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.parallel import ask_all
from reconciler.api.fleetnode import FleetNode
from reconciler.api.nodestate import NodeState
from reconciler.errors import AgentError
from reconciler.fleet import Fleet
from reconciler.plan import Change, Instance, Observation, TargetState
from reconciler.report.nodestate import read_node_state
from reconciler.report.spans import span
from reconciler.target import Outcome, Result
from reconciler.workload import Workload

T = TypeVar("T")

_GRACE_S = 0.2  # for an answer that came at its deadline to be counted


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one agent is waited for, and all of them together."""

    each_s: float = 3.0
    all_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of one agent: its newest answer, or why there is none."""

    answer: Answer | None
    message: str = ""
    seen_at: float | None = None


_PATIENCE = Patience()


class AgentNodes:
    """An Observer of all agent nodes; `apply` skips. One thread uses it."""

    def __init__(
        self, credentials: Credentials, last_seen: LastSeen, patience: Patience = _PATIENCE
    ) -> None:
        self._patience = patience
        self._credentials = credentials
        self._last_seen = last_seen
        self._clients: dict[str, AgentClient] = {}
        self._silent: dict[str, str] = {}  # node without a url -> why it is not asked
        self._heard: dict[str, Heard] = {}
        self._elsewhere: frozenset[str] = frozenset()  # without a url, and heard of all the same
        self._wakes = False
        self.asleep: Mapping[str, str] = {}  # who could not be woken the last time, and why

    def follow(self, fleet: Fleet) -> None:
        """From now on these are the nodes."""
        agents = {n.metadata.name: n.spec.agent for n in fleet.all(FleetNode) if n.spec.agent}
        self._clients = {
            name: AgentClient(name, agent.url, agent.cert_sha256, self._credentials)
            for name, agent in agents.items()
            if agent.url is not None
        }
        self._silent = {
            name: "its FleetNode states no spec.agent.url, so nobody can ask it"
            for name in agents
            if name not in self._clients
        }
        self._heard = {name: h for name, h in self._heard.items() if name in agents}

    @property
    def states(self) -> Mapping[str, NodeState]:
        """What the agents that answered the last time said, by target."""
        return {f"node/{n}": h.answer.state for n, h in self._heard.items() if h.answer}

    def observe(self, workloads: Iterable[Workload] = ()) -> Observation:
        """All agents, at once. One that gives no good answer is unreachable, and why."""
        self._ask()
        return self._observation()

    @property
    def silent(self) -> Collection[str]:
        """Nodes that gave no answer the last time; those that nobody can ask are among them."""
        return [name for name, heard in self._heard.items() if heard.answer is None]

    def hear(self, told: Mapping[str, Heard]) -> Observation:
        """The last look, with what was heard elsewhere of nodes that gave no answer. Why one with a
        url did not stays what is said of it, until something is known of what it runs."""
        better = {n: h for n, h in told.items() if h.answer is not None or n in self._silent}
        self._heard |= better
        heard = (n for n, h in better.items() if h.seen_at is not None)
        self._elsewhere = frozenset(heard) & self._silent.keys()
        return self._observation()

    def _observation(self) -> Observation:
        targets: dict[str, TargetState] = {}
        instances: list[Instance] = []
        for name, heard in sorted(self._heard.items()):
            target = f"node/{name}"
            if heard.answer is None:
                targets[target] = TargetState(target, False, heard.seen_at, heard.message)
                continue
            state, found = read_node_state(heard.answer.state)
            targets[target] = replace(
                state,
                seen_at=heard.seen_at,
                message=heard.message,
                cached=state.cached | _in_use(found),
            )
            instances += found
        return Observation(targets, tuple(instances))

    def apply(self, change: Change) -> Outcome:
        return Outcome(change, Result.SKIPPED, "its agent does it: nobody tells it what to run")

    def wake_with_next_look(self) -> None:
        """Each agent is woken as soon as it has said what it ran before: a dead one delays none."""
        self._wakes = True

    @property
    def unasked(self) -> Collection[str]:
        """Nodes that nobody can ask or ever heard of: waiting for them cannot help."""
        return self._silent.keys() - self._elsewhere

    def _ask(self) -> None:
        wakes, self._wakes = self._wakes, False
        asleep: dict[str, str] = {}

        def ask(client: AgentClient, deadline: float) -> Answer | str:
            known = self._heard.get(client.node)
            try:
                answer = client.state(deadline, known.answer if known else None)
            except AgentError as error:
                return str(error)
            try:
                if wakes:
                    client.wake(deadline)
            except AgentError as error:
                asleep[client.node] = str(error)
            return answer

        answers = self._ask_each(ask)
        now = time.time()
        for name, client in self._clients.items():
            before = self._last_seen.get(name, client.url)
            late = f"{client.url}: no answer within {self._patience.all_s:g} s"
            match answers.get(name, late):
                case Answer() as answer:
                    seen_at = now - answer.age_s
                    self._last_seen.note(name, client.url, seen_at)
                    self._heard[name] = Heard(answer, _stale(answer), seen_at)
                case why:
                    self._heard[name] = Heard(None, why, before)
        for name, why in self._silent.items():
            self._heard[name] = Heard(None, why)
        self._last_seen.save()
        self.asleep = dict(asleep)

    def _ask_each(self, ask: Callable[[AgentClient, float], T]) -> dict[str, T]:
        """Who answered lately first: the threads may all be waiting for dead ones later on."""
        deadline = time.monotonic() + self._patience.all_s
        first = sorted(
            self._clients.values(),
            key=lambda c: -(self._last_seen.get(c.node, c.url) or 0.0),
        )

        def question(client: AgentClient) -> Callable[[], T]:
            return lambda: ask(client, self._until(deadline))

        return ask_all({client.node: question(client) for client in first}, deadline)

    def _until(self, deadline: float) -> float:
        """When an agent that is asked now is given up: early enough for that to be counted."""
        return min(deadline, time.monotonic() + self._patience.each_s) - _GRACE_S


def _in_use(instances: Iterable[Instance]) -> frozenset[str]:
    """Models that processes run from: they are there, whether or not the store was listed yet."""
    return frozenset(
        known
        for instance in instances
        if instance.pid is not None
        for model in instance.inputs.get("models", ())
        for known in (model.get("sha256"), model.get("source"))
        if isinstance(known, str)
    )


def _stale(answer: Answer) -> str:
    if answer.age_s < STALE_AFTER_S:
        return ""
    return (
        f"its agent answers, and has not looked at its node for {span(answer.age_s)}:"
        " see its log, or restart fleet-agent (models keep running)"
    )
