"""This machine's node in the form of an agent's report: from its agent if it serves on loopback,
else from the state directory and the live processes."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from agent.node.recorded import recorded_node
from agent.node.settings import Settings
from agent.node.view import recorded_instances
from agent.process.sockets import listening_socket
from agent.server import served
from agent.state.benchmarks import read_results
from agent.state.directory import StateDir
from reconciler import __version__
from reconciler.agents.client import MOST_BYTES, AgentAnswer
from reconciler.api.fleetnode import FleetNode
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance
from reconciler.fleet.workload import Workload
from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange
from reconciler.loop.journal import revision_state
from reconciler.report.nodestate import node_state, read_node_state
from reconciler.source.history import HistoryFile

_PATIENCE_S = 2.0


def heard_here(
    stated: FleetNode, settings: Settings, workloads: Iterable[Workload], newest: str
) -> AgentAnswer:
    """The report of this machine; `newest` is the revision that it should be at. Raises
    StateError."""
    state = StateDir(settings.root.absolute())
    state.must_be_ours()
    if own := asked(state):
        return AgentAnswer(own, max(0.0, time.time() - own.observed_at))
    node = recorded_node(stated.metadata.name, settings)
    node.memory.follow(stated)
    observed = node.observe(workloads)
    (target,) = observed.targets.values()
    revision = revision_state(HistoryFile(state.desired / "history.json").peek())
    if state.holder() is None and revision.applied != newest.partition("+")[0]:
        no_agent = "no agent runs on this machine: `reconcile apply --local` applies what is newer"
        revision = replace(revision, held=revision.held or no_agent)
    shown = replace(target, seen_at=time.time(), revision=revision)
    published = node_state(
        shown,
        observed.instances,
        agent_version=__version__,
        benchmarks=read_results(state.root),
    )
    return AgentAnswer(published, 0.0)


def instances_here(
    state: StateDir, node: str, own: NodeState | None = None
) -> tuple[Instance, ...]:
    """Every service of this node, as the agent that runs here says; without one, as its records say
    and its processes answer now. `own`: the agent was asked already."""
    instances, own = recorded_instances(state, node), own or asked(state)
    return as_its_agent_says(instances, own) if own else instances


def as_its_agent_says(instances: Iterable[Instance], own: NodeState) -> tuple[Instance, ...]:
    """Each with what its agent says of it, so that no two views differ: one question may find slow
    what three in a row do not, only who asks all the time knows since when, and on a full disk no
    record is true."""
    reported = {i.ref: i for i in read_node_state(own)[1]}
    return tuple(_as_reported(i, reported.get(i.ref)) for i in instances)


def _as_reported(instance: Instance, reported: Instance | None) -> Instance:
    if reported is None:
        return instance
    return replace(
        instance,
        pid=reported.pid,
        gone=reported.gone,
        ready=reported.ready,
        reason=reported.reason,
        message=reported.message,
        since=reported.since,
        endpoint=reported.endpoint,
        served=reported.served,
        measured=reported.measured,
    )


def asked(state: StateDir) -> NodeState | None:
    """The state from a live agent, if it serves it to anyone on this machine. The answer decides
    who gets an API key: the agent is reached without a proxy, and its own process must listen
    there. A killed agent leaves its address behind, which another user's process may have taken."""
    address, holder = served(state.root), state.holder()
    url = urlsplit((address.url if address else None) or "")
    try:
        if holder is None or url.scheme != "http" or not listening_socket(holder, url.port or 0):
            return None
        path = url._replace(path="/v1/state")
        request = HttpRequest("GET", path, {"Accept": "application/json"})
        reply = exchange(request, HttpPolicy(MOST_BYTES), deadline=time.monotonic() + _PATIENCE_S)
        return NodeState.model_validate_json(reply.body) if reply.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None  # the state directory is shown anyway
