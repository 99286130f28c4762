"""Agent reports in their cluster, in the form of their HTTP API. Pure.

FleetNode status.observed                 the node: its revision, memory, what it cannot do
  InferenceService status.instances[node]   one service there; without `inputsDigest`: why not

Users who may write a status can write anything there, so it is validated like an HTTP response.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from reconciler.agents.client import AgentAnswer, judged
from reconciler.agents.nodes import AgentReport
from reconciler.api.digest import digest
from reconciler.api.errors import AgentError
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import GROUP, HOLD_ANNOTATION, PRUNE_ANNOTATION, ObjectRef
from reconciler.api.plain_json import parse_json
from reconciler.core.observation import Location
from reconciler.kube.diff.managed import put_by_others
from reconciler.kube.endpoints.heartbeat import LeaseState
from reconciler.kube.endpoints.heartbeats import AgentHeartbeat
from reconciler.kube.instance_entry import SPEED, is_of_pool
from reconciler.kube.objects import (
    MANAGED_BY_LABEL,
    MANAGER,
    Manifest,
    ObjectId,
    id_of,
    ref_of,
)
from reconciler.loop.desired import Desired
from reconciler.timestamps import parse_timestamp

Entries = Mapping[ObjectRef, Mapping[str, Any]]
"""The entries of one node's agent, by service."""

Fields = Mapping[str, Any]

_WORDS = {"hold": HOLD_ANNOTATION, "prune": PRUNE_ANNOTATION}
_DAMAGE = (AttributeError, KeyError, TypeError, ValueError)


def agents_near(desired: Desired, documents: Collection[ObjectId]) -> frozenset[str]:
    """The nodes with an agent that are also declared in the cluster."""
    return frozenset(
        node.metadata.name
        for node in desired.fleet.all(FleetNode)
        if node.spec.agent is not None and node_id(node.metadata.name) in documents
    )


def entries_by_node(documents: Iterable[Manifest]) -> Mapping[str, Entries]:
    """What agents wrote of every service, by their node."""
    by_node: dict[str, dict[ObjectRef, Fields]] = {}
    for live in documents:
        if live["kind"] != "InferenceService":
            continue
        for entry in (live.get("status") or {}).get("instances") or ():
            if is_of_pool(entry):
                continue
            node, declared = str(entry.get("node")), _as_declared(live, entry)
            by_node.setdefault(node, {})[ref_of(id_of(live))] = declared
    return by_node


def _as_declared(live: Manifest, entry: Fields) -> Fields:
    """Without annotations that a user set with `kubectl annotate`: the agent follows them, but they
    are not part of the fleet."""
    if (live["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) != MANAGER:
        return entry  # applied by another program: everything in it is the fleet's
    overridden = {word for word, a in _WORDS.items() if put_by_others(live, a) is not None}
    inputs = _inputs(entry.get("inputs")) if overridden else {}
    lifecycle = inputs.get("lifecycle")
    if not isinstance(lifecycle, dict) or overridden.isdisjoint(lifecycle):
        return entry
    kept = {word: value for word, value in lifecycle.items() if word not in overridden}
    inputs = {**inputs, "lifecycle": kept}
    return {**entry, "inputs": json.dumps(inputs), "inputsDigest": digest(inputs)}


def heard(
    node: Manifest | None,
    entries: Entries,
    beat: AgentHeartbeat | None,
    stood: Mapping[ObjectRef, Location],
) -> AgentReport:
    """The report of a node from its FleetNode in a cluster and its agent's heartbeat there.
    `stood`: where each service was declared when it was last applied."""
    if beat is None or beat.state is LeaseState.NONE:
        return AgentReport(
            None,
            "its FleetNode states no spec.agent.url, and no agent was ever heard of in the"
            " cluster: start `fleet-agent run --kubernetes` there",
        )
    status = (node or {}).get("status") or {}
    observed = status.get("observed") or {}
    if beat.state is not LeaseState.RENEWED or beat.at is None:
        why = f"its agent was heard of last at {beat.renewed or 'an unknown time'}, by its Lease"
        return AgentReport(None, f"{why}: see whether fleet-agent runs there", beat.at)
    if node is None:
        return AgentReport(
            None, "its FleetNode is not in the cluster yet, to say there what runs", beat.at
        )
    if not observed.get("agentVersion"):
        return AgentReport(None, "its agent is there, and has not said yet what it runs", beat.at)
    name, revision = node["metadata"]["name"], (status.get("desired") or {}).get("revision")
    try:
        state = _node_fields(name, observed, revision, beat.at) | _services(entries, stood)
        return AgentReport(AgentAnswer(judged(state, name), age_s=0.0), "", beat.at)
    except (AgentError, *_DAMAGE) as error:
        return AgentReport(None, f"what it wrote into the cluster: {error}", beat.at)


def node_id(name: str) -> ObjectId:
    return ObjectId(GROUP, "FleetNode", "", name)


def _node_fields(name: str, observed: Fields, desired: str | None, at: float) -> dict[str, Any]:
    """NodeState as JSON, without its services. `desired` is the revision that it should follow."""
    applied = _plain(observed.get("revision"), desired)
    return {
        "node": name,
        "agentVersion": observed["agentVersion"],
        "observedAt": at,
        "revision": {
            "applied": applied,
            "fetched": _plain(observed.get("fetched"), desired) or applied,
            "refused": observed.get("refused"),
            "held": observed.get("held"),
        },
        "overrides": observed.get("overrides", observed.get("said")),
        "missing": observed.get("missing") or {},
        "runtimes": [{"name": name, "path": ""} for name in observed.get("runtimes") or ()],
        "pools": observed.get("pools") or [],
        "stopped": [
            {"ref": _service(entry), "inputsDigest": entry.get("inputsDigest")}
            for entry in observed.get("stopped") or ()
        ],
    }


def _plain(revision: object, desired: str | None) -> object:
    """A revision under its reconciler's name: older agents marked one as git does whose objects
    changed meanwhile."""
    if desired and isinstance(revision, str) and revision.startswith(f"{desired}+dirty."):
        return desired
    return revision


def _services(entries: Entries, stood: Mapping[ObjectRef, Location]) -> dict[str, Any]:
    """Running services, and services that do not run as declared."""
    running = {ref: e for ref, e in sorted(entries.items()) if e.get("inputsDigest")}
    return {
        "instances": [_instance(ref, entry, stood.get(ref)) for ref, entry in running.items()],
        "blocked": [
            {"ref": _ref(ref), **{key: trouble.get(key, "") for key in ("reason", "message")}}
            for ref, entry in sorted(entries.items())
            if (trouble := entry if ref not in running else entry.get("blocked"))
        ],
    }


def _instance(ref: ObjectRef, entry: Fields, source: Location | None) -> dict[str, Any]:
    """InstanceState as JSON."""
    inputs = _inputs(entry.get("inputs"))
    models = inputs.get("models")
    kept = ("pid", "port", "endpoint", "ready", "reason", "message", "inputsDigest", "startSeconds")
    return {key: entry.get(key) for key in (*kept, SPEED)} | {
        "ref": _ref(ref),
        "name": ref.label,
        "runtime": entry.get("runtime") or "",
        "reason": entry.get("reason") or "NotReady",
        "since": parse_timestamp(entry.get("since")),
        "inputs": inputs,
        "source": {"file": source.file, "line": source.line} if source else None,
        "memory": _memory(entry),
        "models": [m for m in models if isinstance(m, dict)] if isinstance(models, list) else [],
        "drift": [
            {**drift, "since": parse_timestamp(drift.get("since")) or 0.0}
            for drift in entry.get("drift") or ()
        ],
        "gone": entry.get("gone") is True,
        "pending": entry.get("pending"),
    }


def _inputs(text: object) -> dict[str, Any]:
    """The inputs that it was started from; empty if unknown: the digest is known."""
    try:
        read = parse_json(str(text or "{}"))
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _memory(entry: Fields) -> list[dict[str, Any]]:
    """The measurement is one number: it is meaningful if there is one pool."""
    needs = [dict(need) for need in entry.get("needs") or ()]
    if len(needs) == 1 and entry.get("memory") is not None:
        needs[0]["measuredBytes"] = entry["memory"]
    return needs


def _ref(ref: ObjectRef) -> dict[str, str]:
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _service(entry: Fields) -> dict[str, Any]:
    return {"kind": "InferenceService", **{key: entry.get(key) for key in ("namespace", "name")}}
