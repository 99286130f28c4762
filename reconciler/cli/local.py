"""This machine as the target: the only room that knows the agent, and imports it late. Where this
machine is no node of the fleet, as in CI, nothing of the agent is imported but what tells that."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import StateError, UsageError
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import ObjectRef
from reconciler.console.option import programs_of
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.source.checkout import Source

if TYPE_CHECKING:
    from agent.node.settings import Settings
    from agent.node.view import RecordedNode
    from agent.process.logreader import LogFile
    from reconciler.agents.client import AgentClient
    from reconciler.agents.nodes import Here
    from reconciler.api.nodestate import NodeState
    from reconciler.report.status import Status
    from reconciler.source.history import NotedRevision


def settings(args: argparse.Namespace) -> Settings:
    """What the command line says of this machine."""
    from agent.node.settings import Settings

    return Settings(
        root=_state_root(args),
        programs=programs_of(args),
        api_key_file=args.api_key_file,
        service_ports=args.service_ports,
        memory_fraction=args.memory_fraction,
        runtime=args.runtime,
        runtimes=args.runtimes,
        host_ip=args.host_ip,
    )


def must_take_changes(args: argparse.Namespace) -> None:
    """Raises StateError where a pass would be refused its state directory, unless an agent has it:
    then that one makes the pass."""
    from agent.state.directory import StateDir

    state = StateDir(_state_root(args))
    if state.holder() is None:
        state.must_take_changes()


def api_key(args: argparse.Namespace) -> str | None:
    """The key that clients of this machine's services send; None: it has none. Raises StateError
    or UsageError."""
    from agent.state.apikey import node_key
    from agent.state.directory import StateDir

    file = args.api_key_file or StateDir(_state_root(args)).api_key
    if args.api_key_file is not None and not file.exists():
        raise UsageError(f"--api-key-file {file}: there is no such file")
    return node_key(file) if file.exists() else None


def node_of(args: argparse.Namespace, fleet: Fleet) -> str:
    """The node that this machine is. Raises UsageError."""
    from agent.node.which import choose_node

    return choose_node(fleet, args.local or None)


def as_here(args: argparse.Namespace) -> Callable[[Fleet], Fleet]:
    """The fleet as this machine's agent sees it: with what memory is there, where it states none.
    What comes out raises UsageError for a fleet that has no such node."""
    from agent.machine.probe import own_memory
    from agent.node.overrides import overlay_of
    from reconciler.placement.overrides import Overlay

    made: dict[str, Overlay] = {}

    def overrides(fleet: Fleet) -> Fleet:
        node = node_of(args, fleet)
        overlay = made.setdefault(node, overlay_of(node, settings(args), own_memory))
        return overlay(fleet)

    return overrides


def this_node(args: argparse.Namespace, source: Source) -> str | None:
    """The node of this fleet that this machine is, by its state; None: it is none."""
    from agent.node.which import node_of_fleet

    return node_of_fleet(_state_root(args), source)


def noted_here(args: argparse.Namespace, source: Source) -> NotedRevision | None:
    """The commit of this fleet that this machine has applied; None: it has none."""
    from agent.node.which import applied_here
    from reconciler.source.history import NotedRevision

    if (known := applied_here(_state_root(args), source)) is None:
        return None
    place = (known.location, known.ref, known.revision, known.fleet, known.root)
    return NotedRevision("", *place, noted_at=known.applied_at, record=known)


def node_here(args: argparse.Namespace, source: Source) -> Here:
    """What this machine knows of itself where its agent cannot be asked by an address."""
    from reconciler.agents.nodes import AgentReport

    def here(fleet: Fleet, workloads: Iterable[Workload]) -> Mapping[str, AgentReport]:
        node = this_node(args, source)
        stated = fleet.get(FleetNode, ObjectRef("FleetNode", "", node)) if node else None
        if stated is None or stated.spec.agent is None:
            return {}
        from agent.server.here import heard_here

        try:
            answer = heard_here(stated, settings(args), workloads, fleet.revision)
        except StateError as error:
            return {stated.metadata.name: AgentReport(None, str(error))}
        return {stated.metadata.name: AgentReport(answer, seen_at=time.time() - answer.age_s)}

    return here


def observed_node(args: argparse.Namespace, node: str, fleet: Fleet | None = None) -> RecordedNode:
    """The node as its records show it, and as this fleet states it; nothing can be changed through
    it."""
    from agent.node.recorded import recorded_node

    recorded = recorded_node(node, settings(args))
    stated = fleet.get(FleetNode, ObjectRef("FleetNode", "", node)) if fleet else None
    if stated is not None:
        recorded.memory.follow(stated)
    return recorded


def remembered_node(args: argparse.Namespace) -> str | None:
    """The node that this machine was the last time; None before the first."""
    from agent.state import node_name

    return node_name.remembered_node(_state_root(args))


def as_reported_here(args: argparse.Namespace, status: Status) -> Status:
    """Add the speeds that were measured on this machine, and what its agent says of each process,
    where it is what was looked at: there no agent was asked."""
    from agent.server.here import as_its_agent_says, asked
    from agent.state.benchmarks import read_results
    from agent.state.directory import StateDir

    if args.local is None:
        return status
    root, observed = _state_root(args), status.observed
    if (own := asked(StateDir(root.absolute()))) is not None:
        observed = replace(observed, instances=as_its_agent_says(observed.instances, own))
    measured = dict.fromkeys(observed.targets, read_results(root))
    return replace(status, observed=observed, measured=measured)


def log_of(args: argparse.Namespace, ref: ObjectRef) -> LogFile | None:
    """What a service's engine wrote on this machine; None: nothing yet. Raises StateError."""
    from agent.process.logreader import LogFile
    from agent.state.directory import StateDir

    state = StateDir(_state_root(args))
    state.must_be_ours()
    path = state.log_file(ref)
    if not path.exists() and not args.follow:
        return None
    return LogFile(path, args.lines, previous=args.previous, follow=args.follow)


def own_state(args: argparse.Namespace) -> Mapping[str, NodeState]:
    """What the agent of this machine says, by its target, where it alone is looked at."""
    from agent.server.here import asked
    from agent.state.directory import StateDir

    own = asked(StateDir(_state_root(args))) if args.local is not None else None
    return {f"node/{own.node}": own} if own else {}


def agent_here(args: argparse.Namespace, node: str) -> AgentClient | None:
    """The agent that runs on this machine, where it answers everybody on it; None: it does not."""
    from agent.server import served
    from agent.state.directory import StateDir
    from reconciler.agents.client import AgentClient
    from reconciler.agents.credentials import AgentCredentials

    state = StateDir(_state_root(args))
    address = served(state.root) if state.holder() is not None else None
    if address is None or address.url is None or not address.url.startswith("http://"):
        return None
    return AgentClient(node, address.url, None, AgentCredentials())


def page_here(args: argparse.Namespace) -> str | None:
    """Where a browser on this machine finds its agent's page; None: no agent serves one."""
    from agent.server import page_url
    from agent.state.directory import StateDir

    return page_url(StateDir(_state_root(args)))


def _state_root(args: argparse.Namespace) -> Path:
    from agent.state.directory import state_root

    return state_root(args.state_dir)
