"""Whom to ask of the machines that left the fleet, and what they answered."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from reconciler.agents.client import AgentAnswer, AgentClient
from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.lastseen import LastSeen, Seen
from reconciler.agents.left import LeftNode, OurFleet, running
from reconciler.api.fleetnode import Agent, FleetNode
from reconciler.fleet.fleet import Fleet

_ASKED_FOR_S = 7 * 86400.0  # one that is silent for so long is given up
_NO_URL = "its FleetNode stated no spec.agent.url, so it cannot be asked from here"


class LeftNodes:
    """Those of one fleet, from what is known of all agents that were ever asked. One thread uses
    it."""

    def __init__(self, last_seen: LastSeen, credentials: AgentCredentials, ours: OurFleet) -> None:
        self._last_seen = last_seen
        self._credentials = credentials
        self._ours = ours
        self._revision = ""
        self._declared: Collection[str] = ()
        self._urls: Collection[str | None] = ()
        self._known: dict[str, Seen] = {}
        self._nodes_left: dict[str, LeftNode] = {}
        self.clients: dict[str, AgentClient] = {}

    @property
    def nodes(self) -> tuple[LeftNode, ...]:
        """The nodes that left, as far as the last answers say."""
        return tuple(self._nodes_left[name] for name in sorted(self._nodes_left))

    def follow(self, fleet: Fleet) -> None:
        """From now on this is what is declared."""
        nodes = tuple(fleet.all(FleetNode))
        self._revision = fleet.revision
        self._declared = {node.metadata.name for node in nodes}
        self._urls = {node.spec.agent.url for node in nodes if node.spec.agent}
        self.clients, self._known, self._nodes_left = {}, {}, {}
        for (name, url), seen in self._last_seen.all().items():
            if self._is_declared(name, url) or time.time() - seen.at >= _ASKED_FOR_S:
                continue
            if self._ours.had(seen, fleet.revision):  # which costs a look into the history
                self._ask_on(name, url, seen)

    def heard_of(self, nodes: Mapping[str, tuple[Agent, tuple[str, ...]]]) -> tuple[str, ...]:
        """Nodes that earlier revisions declared, with the services that these placed there. Yields
        those that have not been asked yet."""
        news = [name for name in nodes if name not in (*self._known, *self._nodes_left)]
        for name in news:
            agent, services = nodes[name]
            if agent.url is None:
                self._nodes_left[name] = LeftNode(name, None, services, message=_NO_URL)
            elif not self._is_declared(name, agent.url):
                seen = self._ours.seen(0.0, self._revision, services, agent.cert_sha256)
                self._ask_on(name, agent.url, seen)
        return tuple(name for name in news if name in self.clients)

    def note(self, name: str, answer: AgentAnswer | str) -> None:
        """What one of them answered, or why it did not."""
        client, known = self.clients[name], self._known[name]
        if isinstance(answer, str):
            seen_at = known.at or None
            self._nodes_left[name] = LeftNode(name, seen_at, known.services, message=answer)
            return
        state = answer.state
        applied = state.revision.applied or ""
        seen = replace(
            known, at=time.time() - answer.age_s, revision=applied, services=running(state)
        )
        if self._ours.had(seen, self._revision):
            self._known[name] = seen
            self._last_seen.note(name, client.url, seen)
            self._nodes_left[name] = LeftNode(name, seen.at, seen.services, state)
        else:  # nothing runs there, or it is another fleet's by now
            self._nodes_left.pop(name, None)
            del self.clients[name], self._known[name]
            self._last_seen.forget(name, client.url)

    def declared(self, client: AgentClient, answer: AgentAnswer, seen_at: float) -> None:
        """What a node of the fleet answered: by this it is known once it is none any more."""
        state = answer.state
        seen = self._ours.seen(
            seen_at, state.revision.applied or "", running(state), client.cert_sha256
        )
        self._last_seen.note(client.node, client.url, seen)

    def _is_declared(self, name: str, url: str) -> bool:
        """Where a node of the fleet answers by now, there is none that left it."""
        return name in self._declared or url in self._urls

    def _ask_on(self, name: str, url: str, seen: Seen) -> None:
        self.clients[name] = AgentClient(name, url, seen.cert_sha256, self._credentials)
        self._known[name] = seen
