"""The pass that applies nothing: what `--dry-run`, `status` and `explain` make of a source and its
targets is what a loop that applies would make of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, SourceError, UsageError
from reconciler.api.problem import Problem
from reconciler.cli import local
from reconciler.cli.fleet import errors_of, journal_of, reader_of
from reconciler.cli.overrides import overrides_of, with_defaults
from reconciler.console.edge import tell
from reconciler.core.observation import Observation
from reconciler.core.plan import Change
from reconciler.core.target import Outcome
from reconciler.fleet.workload import Workload
from reconciler.loop import Listener, Loop, Pass, Wake, steps_of
from reconciler.loop.desired import Desired, no_facts
from reconciler.loop.journal import place_of
from reconciler.report.terminal import printable
from reconciler.source.checkout import Source
from reconciler.source.slice import object_reader

if TYPE_CHECKING:
    from reconciler.agents.left import LeftNode
    from reconciler.agents.nodes import AgentNodes
    from reconciler.api.nodestate import NodeState
    from reconciler.kube.together import Together
    from reconciler.models.headers import Headers


class Findings(Listener):
    """What was observed, and why the newest revision is not what is planned."""

    def __init__(self) -> None:
        self.observed: Observation | None = None
        self.failure: InvalidFleet | SourceError | None = None
        self._held = ""

    def on_observed(self, observed: Observation) -> None:
        self.observed = observed

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.failure = InvalidFleet(errors_of(problems))

    def on_source_lost(self, why: str, since: float) -> None:
        self.failure = SourceError(why)

    def on_held(self, why: str) -> None:
        if why != self._held:
            tell(printable(why))
        self._held = why

    def on_rewritten(self, how: str) -> None:
        tell(printable(how))


@dataclass(frozen=True, slots=True)
class Inspection:
    """A loop that is only asked to compare, what it found, and whom it observes. `node` is this
    machine's, where that is all."""

    loop: Loop
    findings: Findings
    headers: Headers | None
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
        self.findings.failure = None
        self.loop.fetch()
        if self.loop.desired is None and self.findings.failure is not None:
            raise self.findings.failure
        return self.loop.desired

    def compare(self) -> Pass:
        """What would be applied now, of a revision that was fetched."""
        planned = self.loop.compare()
        assert planned is not None, "a revision was fetched"
        return planned


@contextmanager
def open_inspection(
    args: argparse.Namespace,
    source: Source,
    confirmed: frozenset[str] = frozenset(),
    headers: Headers | None = None,
) -> Iterator[Inspection]:
    """An inspection of this machine with --local, else of every agent, and of the clusters that are
    named. `headers`: what is known of models that are not fetched yet. Raises UsageError,
    SourceError, InvalidFleet, AccessError."""
    if args.local is not None:
        if args.cluster:
            raise UsageError("--local is about this machine alone: leave --cluster out")
        yield inspect_node(args, source, confirmed, headers)
        return
    with _everywhere(args, source, confirmed, headers) as inspection:
        yield inspection


def inspect_placement(args: argparse.Namespace, source: Source, headers: Headers) -> Inspection:
    """The one that decides where everything goes, and observes no node."""
    journal, findings = journal_of(source, only_peeks=True), Findings()
    read = reader_of(source, journal)
    steps = replace(steps_of(_Nothing(), headers.facts), overlay=with_defaults(args))
    return Inspection(Loop(source, read, steps, journal, [findings], Wake()), findings, headers)


class _Nothing:
    """A target that observes nothing."""

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        return Observation({}, ())

    def apply(self, change: Change) -> Outcome:
        raise AssertionError(f"nothing is applied, not even {change.ref}")


def inspect_node(
    args: argparse.Namespace,
    source: Source,
    confirmed: frozenset[str] = frozenset(),
    headers: Headers | None = None,
) -> Inspection:
    """The one of this machine's node. Raises UsageError, SourceError, InvalidFleet."""
    from agent.node.follow_options import FollowOptions
    from agent.node.recorded import only_seen

    findings = Findings()
    following = FollowOptions(confirmed=confirmed)
    settings = local.settings(args)
    seen = only_seen(source, args.local or None, settings, [findings], following, headers)
    return Inspection(seen.loop, findings, seen.headers, seen.name)


@contextmanager
def _everywhere(
    args: argparse.Namespace, source: Source, confirmed: frozenset[str], headers: Headers | None
) -> Iterator[Inspection]:
    from reconciler.cli.agents import open_agents
    from reconciler.cli.clusters import open_apis, open_together
    from reconciler.cli.fleet_steps import FleetSteps

    facts = headers.facts if headers else no_facts
    agents = open_agents(args, source)
    place = place_of(source)
    together = open_together(args, agents, open_apis(args), place=place) if args.cluster else None
    here = partial(local.noted_here, args, source)
    steps = FleetSteps(agents, overrides_of(args), facts, together, here).comparing()
    journal, findings = journal_of(source, only_peeks=True), Findings()
    loop = Loop(
        *(source, reader_of(source, journal), steps, journal, [findings], Wake()),
        confirmed=confirmed,
        reread=object_reader(lambda: journal.last),
    )
    try:
        yield Inspection(loop, findings, headers, agents=agents, together=together)
    finally:
        if together:
            together.close()
