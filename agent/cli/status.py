"""What runs on this machine, as its agent says; without one, what the records say, and whether each
service answers now."""

from __future__ import annotations

import argparse
import platform
import time
from typing import TYPE_CHECKING

from reconciler.api.errors import StateError
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add_view_options
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.state.directory import StateDir
    from reconciler.api.meta import ObjectRef
    from reconciler.api.nodestate import NodeState
    from reconciler.report.status import DeclaredService, Status


EXAMPLES = {
    "fleet-agent status": "what runs here",
    "fleet-agent status --follow": "and what becomes of it, until Ctrl-C",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_view_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that was asked for and should run is ready, and nothing stays
    otherwise than declared; 3 otherwise."""
    from agent.server import page_url
    from reconciler.console.statusview import chosen, follow, show

    state = shown_state(args)
    node = _node_name(state)
    if args.follow:
        return follow(args, lambda: _status(state, node))
    status = chosen(args, _status(state, node))
    show(args, status)
    if args.output == "text":
        holder = state.holder()
        runs = f"running, pid {holder}" if holder else "not running"
        tell(f"agent: {runs} ({state.root})")
        if page := page_url(state):
            tell(f"page: {page}")
    late = state.is_gone or [i for i in status.observed.instances if not i.ready]
    waiting = [d for d in status.declared if not d.is_meant]
    return Exit.BLOCKED if late or waiting or status.waits else Exit.OK


def shown_state(args: argparse.Namespace) -> StateDir:
    """The state directory, to be read only: one that an agent would refuse is shown, with
    that warning, as a person may look there to find out what is wrong."""
    from agent.state.directory import StateDir, state_root

    state = StateDir(state_root(args.state_dir))
    try:
        state.must_be_ours()
    except StateError as error:
        tell(f"warning: {printable(str(error))}")
    return state


def _status(state: StateDir, node: str) -> Status:
    """From what lies on disk and the living processes; what only the agent knows, from itself."""
    from agent.byhand.stopped import read_stopped, read_stopped_since
    from agent.node.view import recorded_leaving
    from agent.server.here import asked, instances_here
    from agent.state.benchmarks import read_results
    from agent.state.suspended import read_suspended
    from agent.state.undone import read_undone, with_undone
    from reconciler.core.observation import Observation, TargetState, starts_again
    from reconciler.loop.journal import revision_state
    from reconciler.report.nodestate import read_node_state
    from reconciler.report.status import DeclaredService, Status
    from reconciler.source.history import HistoryFile

    target, own = f"node/{node}", asked(state)
    published = read_node_state(own)[0] if own else None
    instances = instances_here(state, node, own)
    stopped, since = read_stopped(state), read_stopped_since(state)
    history = HistoryFile(state.desired / "history.json").peek()
    # What is blocked an agent says itself.
    undone = [u for u in read_undone(state) if own is None or not u.is_blocked]
    instances = with_undone(instances, undone)
    seen = TargetState(
        target,
        reachable=True,
        seen_at=time.time(),
        message="; ".join(filter(None, (_unserved(state), _unwritten(state)))),
        pools=published.pools if published else (),
        revision=published.revision if published else revision_state(history),
        stopped=stopped,
        leaving=recorded_leaving(state),
        state_option=state.option,
    )
    declared = [
        DeclaredService(ref, "StoppedByHand", starts_again(ref, seen), node, since=since.get(ref))
        for ref in stopped
    ]
    if own is not None:
        declared += _not_running(own, set(stopped))
    else:
        suspended = [ref for ref in read_suspended(state) if ref not in stopped]
        declared += [DeclaredService(ref, "Suspended", "", node) for ref in suspended]
        known = {i.ref for i in instances} | {d.ref for d in declared}
        declared += [
            DeclaredService(u.ref, u.reason, u.message, node) for u in undone if u.ref not in known
        ]
    states = {target: own} if own else {}
    return Status(
        Observation({target: seen}, instances),
        tuple(declared),
        states,
        measured={target: read_results(state.root)},
    )


def _not_running(own: NodeState, known: set[ObjectRef]) -> Iterator[DeclaredService]:
    """The services that the agent does not run, each once: held, also by what they need, or
    suspended."""
    from reconciler.report.instancestate import read_ref
    from reconciler.report.status import DeclaredService

    blocked = [(ref, b.reason, b.message) for b in own.blocked for ref in (b.ref, *b.holds)]
    for each, reason, message in (*blocked, *((ref, "Suspended", "") for ref in own.suspended)):
        ref = read_ref(each)
        if ref.kind == "InferenceService" and ref not in known:
            known.add(ref)
            yield DeclaredService(ref, reason, message, own.node)


def _unserved(state: StateDir) -> str:
    """Why the agent that runs here cannot be asked."""
    from agent.server import served

    address = served(state.root) if state.holder() else None
    if address is None or address.problem is None:
        return ""
    return f"its agent serves no state and no metrics: {address.problem}"


def _unwritten(state: StateDir) -> str:
    """What keeps the agent that runs here from noting anything."""
    if state.holder() is None:
        return ""
    if not state.is_gone:
        return state.why_takes_nothing() or ""
    return "the state directory is gone: its agent writes it again with its next pass"


def _node_name(state: StateDir) -> str:
    """The FleetNode that this machine was the last time; before the first, the host's name."""
    from agent.state.node_name import remembered_node

    return remembered_node(state.root) or platform.node().partition(".")[0] or "this"
