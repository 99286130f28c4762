"""What the page of a whole fleet is made of: `status -o json` and `plan -o json` of a loop's last
pass."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef, service_ref
from reconciler.cli.observed_status import status_as_seen
from reconciler.core.observation import Observation
from reconciler.http.host import is_loopback
from reconciler.loop import Listener
from reconciler.loop.explained import explained
from reconciler.page.values import Document, Documents
from reconciler.report.plan_json import plan_json
from reconciler.report.status import Status
from reconciler.report.status_documents import StatusDocuments
from reconciler.report.status_json import status_json

if TYPE_CHECKING:
    from reconciler.agents.left import LeftNode
    from reconciler.agents.nodes import AgentNodes
    from reconciler.api.nodestate import NodeState
    from reconciler.fleet.fleet import Fleet
    from reconciler.loop import Pass


@dataclass(frozen=True, slots=True)
class _Seen:
    """A pass, and what the agents had said when it was planned."""

    number: int
    planned: Pass
    states: Mapping[str, NodeState]
    left: tuple[LeftNode, ...]


class FleetDocuments(Listener):
    """The loop's thread notes each pass; the server's makes the documents of it, once, if anybody
    looks. They keep no pass alive: nobody may look for days."""

    def __init__(self, agents: AgentNodes) -> None:
        self._agents = agents
        self._numbers = itertools.count()
        self._seen: _Seen | None = None
        self._made: tuple[int, Documents] | None = None
        self._statuses = StatusDocuments()

    def on_planned(self, planned: Pass) -> None:
        states = dict(self._agents.states)
        self._seen = _Seen(next(self._numbers), planned, states, self._agents.left)

    def __call__(self) -> Documents:
        seen = self._seen
        if seen is None:
            return Documents("fleet", status_json(Status(Observation({}, ()))), None)
        if self._made is None or self._made[0] != seen.number:
            self._made = (seen.number, self._documents(seen))
        return self._made[1]

    def _documents(self, seen: _Seen) -> Documents:
        fleet = seen.planned.desired.fleet
        status = status_as_seen(seen.planned, seen.states, seen.left)
        names = [policy.metadata.name for policy in fleet.all(FleetPolicy)]
        return Documents(
            names[0] if names else "fleet",
            self._statuses.of(status),
            plan_json(seen.planned.plan),
            self._explained,
            page_of=lambda target: page_of(fleet, target),
        )

    def _explained(self, namespace: str, name: str) -> Document | None:
        """By the last pass."""
        seen = self._seen
        if seen is None:
            return None
        return explained(seen.planned, service_ref(f"{namespace}/{name}"), None)


def page_of(fleet: Fleet, target: str) -> str | None:
    """Where others find the page of a node, by what the fleet states of its agent."""
    kind, _, name = target.partition("/")
    node = fleet.get(FleetNode, ObjectRef("FleetNode", "", name)) if kind == "node" else None
    url = node.spec.agent.url if node and node.spec.agent else None
    return None if url is None or is_loopback(urlsplit(url).hostname or "") else url.rstrip("/")
