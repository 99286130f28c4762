"""What a revision declares beside what others declared that targets have applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.fleetnode import Agent
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Observation
from reconciler.core.prune import Before, SinceApplied
from reconciler.fleet.fleet import Fleet
from reconciler.source.checkout import Checkout
from reconciler.source.field_value import value_at
from reconciler.source.history import is_commit
from reconciler.source.load import Loaded

LeftNode = tuple[Agent, tuple[str, ...]]
"""A machine that is declared no more, with the services that were placed there by name."""


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What matters of another commit. `services`: all that it declares. `left`: nodes that this
    revision does not."""

    services: frozenset[str]
    left: Mapping[str, LeftNode]


@dataclass(frozen=True, slots=True)
class DeclaredSince:
    """One revision, as it was read. What other commits declare is kept: a large revision is applied
    in many passes."""

    checkout: Checkout
    loaded: Loaded
    fleet: Fleet
    _known: dict[str, _Earlier] = field(default_factory=dict, compare=False, repr=False)

    def removed(self, observed: Observation, before: Before) -> dict[str, SinceApplied]:
        """By target: what became of the fleet since the revision that it applied last, where that
        is known. What an agent said that it applied is what its own journal has."""
        since: dict[str | None, SinceApplied | None] = {}  # by the revision that was applied
        removed: dict[str, SinceApplied] = {}
        for target, state in observed.targets.items():
            applied = state.revision.applied if state.revision else None
            if applied not in since:
                since[applied] = self._since(applied, before)
            if (known := since[applied]) is not None:
                removed[target] = known
        return removed

    def _since(self, applied: str | None, before: Before) -> SinceApplied | None:
        services = self._services_at(applied) if applied else None
        services = before.services if services is None else services
        if services is None:
            return None
        declared = {ref.label for ref in self._services()}
        return SinceApplied(services - declared, len(services), frozenset(declared - services))

    def _services(self) -> Iterator[ObjectRef]:
        """Every service that has a document, also one with an error."""
        documents = (ref for refs in self.loaded.files.values() for ref in refs)
        for ref in {*self.fleet.objects, *documents}:
            if ref.kind == "InferenceService":
                yield ref

    def _services_at(self, revision: str) -> frozenset[str] | None:
        """The services that another commit declares; None: it is not here to be read."""
        if revision == self.checkout.revision:
            return frozenset(ref.label for ref in self._services())
        earlier = self._at(revision)
        return earlier.services if earlier else None

    def left_nodes(self, observed: Observation) -> dict[str, LeftNode]:
        """Machines that an agent's last revision declared and this one does not. They end nothing
        by themselves."""
        states = (state.revision for state in observed.targets.values())
        applied = {state.applied for state in states if state and state.applied}
        nodes: dict[str, LeftNode] = {}
        for revision in sorted(applied - {self.checkout.revision}):
            if earlier := self._at(revision):
                nodes |= earlier.left
        return nodes

    def _at(self, revision: str) -> _Earlier | None:
        """None: it is no commit that is here to be read."""
        earlier = self._known.get(revision) or self._read(revision)
        if earlier is not None:
            self._known[revision] = earlier
        return earlier

    def _read(self, revision: str) -> _Earlier | None:
        history = self.checkout.history
        changed = history.changed_since(revision) if history and is_commit(revision) else None
        if changed is None:
            return None
        was, now = changed
        there = (frozenset(self._services()) - (now.keys() - was.keys())) | was.keys()
        return _Earlier(
            frozenset(ref.label for ref in there if ref.kind == "InferenceService"),
            {
                ref.name: (agent, tuple(sorted(_placed_on(ref.name, was))))
                for ref in was
                if ref.kind == "FleetNode" and ref not in self.fleet.objects
                if (agent := _agent(was[ref]))
            },
        )


def _agent(document: Any) -> Agent | None:  # noqa: ANN401 - any document
    """None: no agent runs there, or what is stated of it is not valid."""
    try:
        return Agent.model_validate(value_at(document, "spec.agent"))
    except ValueError:
        return None


def _placed_on(node: str, documents: Mapping[ObjectRef, Any]) -> Iterator[str]:
    for ref, document in documents.items():
        nodes = value_at(document, "spec.placement.nodes")
        if ref.kind == "InferenceService" and isinstance(nodes, list) and node in nodes:
            yield ref.label
