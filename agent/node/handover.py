"""Successors of the services that leave this node: the agents of other nodes are asked for them.

The plan decides what becomes of the copies here. An agent that cannot be asked, or whose answer may
be another program's, counts as a successor that is not ready: a copy too many is better than none.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.state.directory import StateDir
from agent.system.clock import Clock, SystemClock
from reconciler.agents.credentials import AgentCredentials
from reconciler.api.errors import AgentError
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.atomic import atomic_write
from reconciler.core.moves import handover_s
from reconciler.core.observation import Successor
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.ownfile import glance

if TYPE_CHECKING:
    from reconciler.agents.client import AgentAnswer, AgentClient

_ANSWER_S = 3.0


@dataclass(frozen=True, slots=True)
class Move:
    """A service that leaves, and since when (epoch seconds)."""

    since: float
    successor: Successor


Moves = Mapping[str, Move]
"""Moves by the label of their service."""


@dataclass(slots=True)
class Handover:
    """The moves of one node. A thread of its own asks, and calls `changed` when an answer is news.

    `file` stores the moves for commands that only read, and since when they last, so that our own
    restart does not begin the wait again. All but `close` is called by the loop's thread.
    """

    file: Path
    credentials: AgentCredentials = field(default_factory=AgentCredentials)
    changed: Callable[[], None] = lambda: None
    clock: Clock = field(default_factory=SystemClock)
    again_s: float = 2.0  # between two questions
    _clients: Mapping[str, AgentClient] = field(default_factory=dict)
    _moves: dict[str, Move] = field(default_factory=dict)
    _written: Moves = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of `_moves`
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Begin with what was noted last, but for answers that may be true no more."""
        self._moves = {
            label: replace(move, successor=replace(move.successor, ready=False))
            for label, move in read_moves(self.file).items()
        }

    def follow(self, fleet: Fleet) -> None:
        """From now on these are the other nodes, and how they are asked."""
        agents = {n.metadata.name: n.spec.agent for n in fleet.all(FleetNode) if n.spec.agent}
        if all(agent.url is None for agent in agents.values()):
            self._clients = {}
            return
        from reconciler.agents.client import AgentClient

        self._clients = {
            name: AgentClient(name, agent.url, agent.cert_sha256, self.credentials)
            for name, agent in agents.items()
            if agent.url is not None
        }

    def successors(self, moving: Mapping[ObjectRef, Workload]) -> dict[ObjectRef, Successor]:
        """Return what is known of the successors of the services that leave, and ask on."""
        with self._lock:
            moves = {ref: self._move(ref, want) for ref, want in moving.items()}
            self._moves = {ref.label: move for ref, move in moves.items()}
        if self._moves != self._written:
            self.save()
        if any(self._client(move.successor) for move in moves.values()):
            self._watch()
        return {ref: move.successor for ref, move in moves.items()}

    def noted(self, moving: Mapping[ObjectRef, Workload]) -> dict[ObjectRef, Successor]:
        """Return what the agent of this node noted last of the successors, and ask nobody."""
        self._moves = dict(read_moves(self.file))
        return {ref: self._move(ref, want).successor for ref, want in moving.items()}

    def _move(self, ref: ObjectRef, want: Workload) -> Move:
        now, known = self.clock.time(), self._moves.get(ref.label)
        if known is None or known.successor.home != want.target:
            known = Move(now, Successor(want.target))
        successor = self._now(ref, known.successor)
        is_overdue = now - known.since >= handover_s(want)
        return Move(known.since, replace(successor, is_overdue=is_overdue))

    def save(self) -> None:
        """Write the moves. A disk that takes no more costs a wait that begins again with our own
        restart."""
        self._written = self._moves
        with contextlib.suppress(OSError):
            rows = {label: asdict(move) for label, move in self._written.items()}
            atomic_write(self.file, json.dumps(rows).encode())

    def close(self) -> None:
        """An answer that is still awaited delays no exit: its thread is a daemon."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)

    def _now(self, ref: ObjectRef, known: Successor) -> Successor:
        """The successor as it is known without a question over the network."""
        if (why := self._why_unasked(ref, known.home)) is not None:
            return Successor(known.home, refusal="SuccessorUnknown", message=why)
        return known

    def _why_unasked(self, ref: ObjectRef, home: str) -> str | None:
        """Return why no agent can be asked for a successor; None if its agent can."""
        kind, _, name = home.partition("/")
        ends = f"`fleet-agent stop {ref.label}` here ends this copy once it is ready there"
        if kind != "node":
            return f"an agent cannot ask a cluster. {ends}"
        client = self._clients.get(name)
        if client is None:
            return f"its FleetNode states no spec.agent.url. State one, or {ends}"
        if not client.is_authentic:
            return (
                f"{client.url}: another program on the way could answer for it. State an https"
                " address in its spec.agent.url, with certSha256"
            )
        return None

    def _client(self, successor: Successor) -> AgentClient | None:
        """Return the client of a successor's agent; None if no agent can be asked."""
        kind, _, name = successor.home.partition("/")
        client = self._clients.get(name) if kind == "node" else None
        return client if client is not None and client.is_authentic else None

    def _watch(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask_on, name="handover", daemon=True)
            self._thread.start()

    def _ask_on(self) -> None:
        """Ask again and again, as long as a service leaves: an answer is true for a moment."""
        while asked := self._asked():
            before = self._moves
            answers = {
                label: successor
                for client, labels in asked.items()
                for label, successor in _answers(client, labels, before)
            }
            if self._learn(answers):
                self.changed()
            if self._stop.wait(self.again_s):
                return

    def _asked(self) -> dict[AgentClient, list[str]]:
        asked: dict[AgentClient, list[str]] = {}
        for label, move in self._moves.items():
            if (client := self._client(move.successor)) is not None:
                asked.setdefault(client, []).append(label)
        return asked

    def _learn(self, answers: Mapping[str, Successor]) -> bool:
        """Take the answers about moves that still are. Return True if one is news."""
        news = {}
        with self._lock:
            for label, move in self._moves.items():
                answer = answers.get(label)
                if answer is None or answer.home != move.successor.home:
                    continue
                answer = replace(answer, is_overdue=move.successor.is_overdue)
                if answer != move.successor:
                    news[label] = replace(move, successor=answer)
            self._moves = {**self._moves, **news}
        return bool(news)


def moves_file(state: StateDir) -> Path:
    """Return the file with the moves of a node."""
    return state.desired / "moves.json"


def read_moves(file: Path) -> Moves:
    """Return what an agent wrote last; nothing where the file is missing or damaged."""
    return glance(file, _moves) or {}


def _answers(
    client: AgentClient, labels: Iterable[str], moves: Moves
) -> Iterator[tuple[str, Successor]]:
    """Return the state of these services as their agent reports it now."""
    from reconciler.report.nodestate import verdicts_of

    try:
        state = _believed(client).state
    except AgentError as error:
        for label in labels:
            home = moves[label].successor.home
            yield label, Successor(home, refusal="NotReachable", message=str(error))
        return
    there = {instance.name: instance for instance in state.instances}
    refused = {ref.label: verdict for ref, verdict in verdicts_of(state).items()}
    for label in labels:
        copy, home = there.get(label), moves[label].successor.home
        reason, message = refused.get(label, ("", ""))
        if copy is not None and copy.ready:
            yield label, Successor(home, ready=True, message="it is ready there")
        elif reason:
            yield label, Successor(home, refusal=reason, message=message)
        elif copy is not None:
            detail = f": {copy.message}" if copy.message else ""
            yield label, Successor(home, message=f"there it is {copy.reason}{detail}")
        else:
            yield label, Successor(home, message="it is not there yet")


def _believed(client: AgentClient) -> AgentAnswer:
    """What a successor's agent says now. AgentError where nothing may be stopped for it."""
    from reconciler.agents.client import STALE_AFTER_S

    answer = client.state(time.monotonic() + _ANSWER_S)
    if answer.age_s > STALE_AFTER_S:
        raise AgentError(f"{client.url}: its agent has not looked at it for {answer.age_s:.0f} s")
    return answer


def _moves(data: Mapping[str, Any]) -> dict[str, Move]:
    return {
        str(label): Move(
            float(entry["since"]),
            Successor(
                home=str(entry["successor"]["home"]),
                ready=bool(entry["successor"]["ready"]),
                refusal=str(entry["successor"]["refusal"]),
                message=str(entry["successor"]["message"]),
                is_overdue=bool(entry["successor"]["is_overdue"]),
            ),
        )
        for label, entry in data.items()
    }
