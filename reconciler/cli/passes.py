"""The pass that applies nothing: what `--dry-run`, `status` and `explain` make of a source and its
targets is what a loop that applies would make of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, SourceError
from reconciler.api.problem import Problem
from reconciler.cli import local
from reconciler.cli.fleet import errors_of, journal_of, reader_of
from reconciler.cli.overrides import overrides_of, with_defaults
from reconciler.console.edge import tell
from reconciler.core.observation import Observation
from reconciler.core.plan import Change, Plan
from reconciler.core.target import Outcome
from reconciler.fleet.workload import Workload
from reconciler.loop import Loop, LoopDelegate, PlannedRevision, Wake
from reconciler.loop.desired import CachedFacts, Desired, no_facts
from reconciler.loop.journal import place_of
from reconciler.report.terminal import printable
from reconciler.source.checkout import Source

if TYPE_CHECKING:
    from reconciler.agents.left import LeftNode
    from reconciler.agents.nodes import AgentNodes
    from reconciler.api.nodestate import NodeState
    from reconciler.fleet.fleet import Fleet
    from reconciler.kube.together import Together
    from reconciler.models.headers import Headers


class PassReport:
    """The Reporter of a pass that applies nothing: what was observed, and why the newest revision
    is not what is planned."""

    def __init__(self) -> None:
        self.observed: Observation | None = None
        self.failure: InvalidFleet | SourceError | None = None
        self._held = ""

    def looked(self, observed: Observation) -> None:
        self.observed = observed

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.failure = InvalidFleet(errors_of(problems))

    def source_lost(self, why: str, since: float) -> None:
        self.failure = SourceError(why)

    def held(self, why: str) -> None:
        if why != self._held:
            tell(printable(why))
        self._held = why

    def rewritten(self, how: str) -> None:
        tell(printable(how))

    def planned(self, plan: Plan, desired: Desired) -> None:
        """The plan belongs to the code that made the comparison."""

    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None:
        """Nothing is."""

    def source_back(self) -> None:
        """It was not away."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A loop that is only asked to compare, its report, and whom it observes. `node` is this
    machine's, where that is all."""

    loop: Loop
    report: PassReport
    node: str | None = None
    agents: AgentNodes | None = None
    together: Together | None = None

    @property
    def states(self) -> Mapping[str, NodeState]:
        """The answers of the agents that gave one, by target."""
        return self.agents.states if self.agents else {}

    @property
    def left(self) -> tuple[LeftNode, ...]:
        """Machines that left the fleet."""
        return self.agents.left if self.agents else ()

    def fetch(self) -> Desired | None:
        """The revision that is, or stays, followed. None: there is none, and the reason was
        reported. Raises InvalidFleet or SourceError where that is the reason."""
        self.report.failure = None
        self.loop.fetch()
        if self.loop.desired is None and self.report.failure is not None:
            raise self.report.failure
        return self.loop.desired

    def compare(self) -> PlannedRevision:
        """What would be applied now, of a revision that was fetched."""
        planned = self.loop.compare()
        assert planned is not None, "a revision was fetched"
        return planned


@contextmanager
def open_pass(
    args: argparse.Namespace,
    source: Source,
    confirmed: frozenset[str] = frozenset(),
    headers: Headers | None = None,
) -> Iterator[Pass]:
    """With --local this machine's, else the one of every agent, and of the clusters that are named.
    `headers`: what is known of models that are not fetched yet. Raises UsageError, SourceError,
    InvalidFleet, AccessError."""
    if args.local is not None:
        yield this_machines(args, source, confirmed, headers)
        return
    with _everywhere(args, source, confirmed, headers) as found:
        yield found


def unasked(args: argparse.Namespace, source: Source, headers: Headers) -> Pass:
    """The one that decides where everything goes, and observes no node."""
    journal, report = journal_of(source, only_peeks=True), PassReport()
    read = reader_of(source, journal)
    delegate = _Unasked(with_defaults(args), headers.facts)
    return Pass(Loop(source, read, delegate, journal, report, Wake()), report)


class _Unasked(LoopDelegate):
    """Of a loop that asks no node."""

    def __init__(self, overrides: Callable[[Fleet], Fleet], facts: CachedFacts) -> None:
        super().__init__(_Nothing(), facts)
        self._overrides = overrides

    def apply_overrides(self, fleet: Fleet) -> Fleet:
        return self._overrides(fleet)


class _Nothing:
    """A target that observes nothing."""

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        return Observation({}, ())

    def apply(self, change: Change) -> Outcome:
        raise AssertionError(f"nothing is applied, not even {change.ref}")


def this_machines(
    args: argparse.Namespace,
    source: Source,
    confirmed: frozenset[str] = frozenset(),
    headers: Headers | None = None,
) -> Pass:
    """The one of this machine's node. Raises UsageError, SourceError, InvalidFleet."""
    from agent.node.following import Following
    from agent.node.recorded import only_seen

    report = PassReport()
    following = Following(confirmed=confirmed)
    settings = local.settings(args)
    name, loop = only_seen(source, args.local or None, settings, report, following, headers)
    return Pass(loop, report, name)


@contextmanager
def _everywhere(
    args: argparse.Namespace, source: Source, confirmed: frozenset[str], headers: Headers | None
) -> Iterator[Pass]:
    from reconciler.cli.agents import open_agents
    from reconciler.cli.clusters import open_apis, open_together
    from reconciler.cli.delegates import FleetDelegate

    facts = headers.facts if headers else no_facts
    agents = open_agents(args, source)
    place = place_of(source)
    together = open_together(args, agents, open_apis(args), place=place) if args.cluster else None
    delegate = FleetDelegate(agents, overrides_of(args), facts, together)
    journal, report = journal_of(source, only_peeks=True), PassReport()
    loop = Loop(
        *(source, reader_of(source, journal), delegate, journal, report, Wake()),
        confirmed=confirmed,
    )
    try:
        yield Pass(loop, report, agents=agents, together=together)
    finally:
        if together:
            together.close()
