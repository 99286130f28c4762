"""A service that moves to another node: its copy here stays until the one there answers.

It goes when its successor is ready, when `rollout.handover` is over, or when its memory is needed
here. Who cannot be asked is waited for until the end: a copy too many is better than none.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.system.clock import Clock, SystemClock
from reconciler.agents.client import STALE_AFTER_S, AgentAnswer, AgentClient
from reconciler.agents.credentials import AgentCredentials
from reconciler.api.errors import AgentError
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.api.service_parts import Rollout
from reconciler.atomic import atomic_write
from reconciler.core.plan import Change
from reconciler.fleet.fleet import Fleet
from reconciler.ownfile import glance

_ANSWER_S = 3.0
_DEFAULT_S = Rollout.model_construct().handover  # where what runs does not say
_log = logging.getLogger(__name__)

_Entry = dict[str, object]  # home and since, as the file has them


@dataclass(slots=True)
class _Leaving:
    """One service on its way: to which node, and since when (epoch seconds)."""

    home: str
    since: float
    answers: bool = False
    why: str = "not asked yet"


@dataclass(slots=True)
class Handover:
    """The moves of one node. `changed` is called in its own thread when a successor answers.

    `file` keeps since when, so that our own restart does not begin the wait again. All but
    `close` is called by the loop's thread.
    """

    file: Path
    credentials: AgentCredentials = field(default_factory=AgentCredentials)
    changed: Callable[[], None] = lambda: None
    clock: Clock = field(default_factory=SystemClock)
    again_s: float = 2.0  # between two questions
    _clients: Mapping[str, AgentClient] = field(default_factory=dict)
    _leaving: dict[ObjectRef, _Leaving] = field(default_factory=dict)
    _before: dict[str, _Entry] = field(default_factory=dict)  # of an earlier life, by label
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._before = _saved(self.file)

    def follow(self, fleet: Fleet) -> None:
        """From now on these are the other nodes, and how they are asked."""
        agents = {n.metadata.name: n.spec.agent for n in fleet.all(FleetNode) if n.spec.agent}
        self._clients = {
            name: AgentClient(name, agent.url, agent.cert_sha256, self.credentials)
            for name, agent in agents.items()
            if agent.url is not None
        }

    def holds(self, change: Change) -> str | None:
        """Why the copy here has to stay, or None: it may go now."""
        assert change.home is not None
        kind, _, name = change.home.partition("/")
        home = name if kind == "node" else f"{kind} {name}"
        leaving = self._entry(change.ref, home)
        if leaving.answers:
            return None
        lifecycle = change.desired.lifecycle if change.desired else {}
        ends = leaving.since + float(lifecycle.get("rollout.handover", _DEFAULT_S))
        if self.clock.time() >= ends:
            _log.info("%s: %s did not take over in time: stopped here", change.ref.label, home)
            return None
        at = time.strftime("%H:%M:%S", time.localtime(ends))
        whom = f"node {home}" if kind == "node" else home
        remedy = ": see to the agent there, or take the move back" if kind == "node" else ""
        return f"stays until {whom} answers for it, at most until {at} ({leaving.why}){remedy}"

    def over(self, ref: ObjectRef) -> None:
        """It is gone from here, or it stays after all."""
        if ref in self._leaving or ref.label in self._before:
            self._leaving = {r: entry for r, entry in self._leaving.items() if r != ref}
            self._before.pop(ref.label, None)
            self.save()

    def stays(self, wanted: Collection[ObjectRef], running: Collection[ObjectRef]) -> None:
        """Moves that were taken back, or whose copy here is gone, are over."""
        for ref in self._leaving:
            if ref in wanted or ref not in running:
                self.over(ref)
        on = {ref.label for ref in running} - {ref.label for ref in wanted}
        if self._before.keys() - on:  # what ended while we did not run
            self._before = {label: e for label, e in self._before.items() if label in on}
            self.save()

    @property
    def leaving(self) -> Mapping[ObjectRef, str]:
        """Services that wait for their successor, with the node that it is to run on."""
        return {ref: entry.home for ref, entry in self._leaving.items()}

    def close(self) -> None:
        """An answer that is still awaited delays no exit: its thread is a daemon."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)

    def _entry(self, ref: ObjectRef, home: str) -> _Leaving:
        known = self._leaving.get(ref)
        if known is None or known.home != home:
            since = self._before.pop(ref.label, {})
            began = since.get("since") if since.get("home") == home else None
            known = _Leaving(home, began if isinstance(began, float) else self.clock.time())
            if home.startswith("cluster "):
                known.why = "an agent asks no cluster"
            elif home not in self._clients:
                known.why = "its FleetNode states no spec.agent.url, so it cannot be asked"
            self._leaving = {**self._leaving, ref: known}
            self.save()
        if not known.answers:
            self._watch()  # with every pass: the thread may just have ended for want of work
        return known

    def _watch(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask_on, name="handover", daemon=True)
            self._thread.start()

    def _ask_on(self) -> None:
        """Until no service waits: the node of each that does."""
        while waiting := {r: e for r, e in self._leaving.items() if not e.answers}:
            for home in {entry.home for entry in waiting.values()}:
                self._ask(home, {r: e for r, e in waiting.items() if e.home == home})
            if any(entry.answers for entry in waiting.values()):
                self.changed()
            if self._stop.wait(self.again_s):
                return

    def _ask(self, home: str, waiting: Mapping[ObjectRef, _Leaving]) -> None:
        client = self._clients.get(home)
        if client is None:
            return
        try:
            answer = _believed(client)
        except AgentError as error:
            for entry in waiting.values():
                entry.why = str(error)
            return
        there = {instance.name: instance for instance in answer.state.instances}
        for ref, entry in waiting.items():
            successor = there.get(ref.label)
            entry.why = f"there it is {successor.reason}" if successor else "it is not there yet"
            entry.answers = successor is not None and successor.ready

    def save(self) -> None:
        """A disk that takes no more costs a longer wait after our own restart, nothing else."""
        entries = dict(self._before)
        entries |= {r.label: {"home": e.home, "since": e.since} for r, e in self._leaving.items()}
        with contextlib.suppress(OSError):
            atomic_write(self.file, json.dumps(entries).encode())


def _saved(file: Path) -> dict[str, _Entry]:
    """What an earlier run of this agent wrote; empty where the file is missing or damaged."""
    return glance(file, _entries) or {}


def _entries(data: Mapping[str, Any]) -> dict[str, _Entry]:
    return {
        str(label): {"home": str(entry["home"]), "since": float(entry["since"])}
        for label, entry in data.items()
    }


def _believed(client: AgentClient) -> AgentAnswer:
    """What a successor's agent says now. AgentError where nothing may be stopped for it."""
    if not client.is_authentic:
        raise AgentError(
            f"{client.url}: anybody on the way could answer for it: state an https address in its"
            " spec.agent.url, with certSha256"
        )
    answer = client.state(time.monotonic() + _ANSWER_S)
    if answer.age_s > STALE_AFTER_S:
        raise AgentError(f"{client.url}: its agent has not looked at it for {answer.age_s:.0f} s")
    return answer
