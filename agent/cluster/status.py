"""What an agent writes about itself into a cluster's objects. Pure.

It owns one entry of each service's `status.instances[]`, by node, and its FleetNode's
`status.observed`. Figures that change all the time do not count as a change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.core.observation import Instance, ObservedPool, RevisionState, TargetState
from reconciler.kube.endpoints.slices import Unpublished
from reconciler.kube.instance_entry import SPEED, is_other_speed
from reconciler.kube.objects import Manifest
from reconciler.report.terminal import printable
from reconciler.timestamps import timestamp

_MOST_TEXT = 500  # characters: every watcher of the service receives them with every change
_MOST_PROBLEMS = 20
_MOST_INPUTS = 32_768  # characters, as in its definition
_MOST_WEIGHTS = 512
_MOST_DRIFTS = 10
_MOST_STOPPED = 100
_MOST_REFUSALS = 3
_MEMORY_STEP = 0.1  # relative change of measured memory before it is written again
_UNCOUNTED = ("memory", "revision", SPEED)
_OTHERS = "usedByOthersBytes"


@dataclass(frozen=True, slots=True)
class ServiceTrouble:
    """A service that has no process here, and why."""

    ref: ObjectRef
    reason: str
    message: str


def instance_entry(
    instance: Instance,
    node: str,
    revision: str | None,
    trouble: ServiceTrouble | None = None,
    speed: float | None = None,
) -> dict[str, Any]:
    """A service as its node runs it, with all that a remote plan needs. `revision` is the one
    applied there; `trouble` is why it is not as declared; `speed` the tokens that it wrote a second
    in the last minute, None where its engine does not tell."""
    measured, waits = sum(size for _, size in instance.measured), instance.pending
    entry = {
        "node": node,
        "ready": instance.ready,
        "reason": instance.reason,
        "message": _cut(instance.message),
        "runtime": instance.runtime,
        "pid": instance.pid,
        "port": instance.port,
        "endpoint": instance.endpoint,
        "memory": measured or None,
        SPEED: speed,
        "needs": _needs(instance),
        "inputs": _inputs(instance),
        "revision": revision,
        "inputsDigest": instance.inputs_digest,
        "since": timestamp(instance.since) if instance.since is not None else None,
        "startSeconds": round(instance.start_seconds, 1) if instance.start_seconds else None,
        "gone": instance.gone or None,
        "drift": [
            {"kind": d.kind.value, "message": _cut(d.message), "since": timestamp(d.since)}
            for d in instance.drifts[:_MOST_DRIFTS]
        ],
        "pending": waits
        and _without_empty(
            {
                "reason": waits.reason,
                "message": _cut(waits.message),
                "inputsDigest": waits.inputs_digest,
            }
        ),
        "blocked": trouble and {"reason": trouble.reason, "message": _cut(trouble.message)},
    }
    return _without_empty(entry)


def trouble_entry(trouble: ServiceTrouble, node: str) -> dict[str, Any]:
    """A service that cannot run there."""
    return {
        "node": node,
        "ready": False,
        "reason": trouble.reason,
        "message": _cut(trouble.message),
    }


def node_status(node: str, observed: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetNode",
        "metadata": {"name": node},
        "status": {"observed": dict(observed)},
    }


def node_observed(
    state: TargetState | None,
    revision: RevisionState,
    *,
    agent_version: str,
    host_ip: str | None,
    unpublished: Mapping[ObjectRef, Unpublished],
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    """The state of a node, without figures that change all the time. `overrides` are the settings
    given on the machine itself, as in NodeState."""
    is_ahead = revision.fetched != revision.applied
    observed = {
        "agentVersion": agent_version,
        "hostIP": host_ip,
        "revision": revision.applied,
        "fetched": revision.fetched if is_ahead else None,
        "refused": _refused(revision),
        "held": _cut(revision.held),
        "overrides": dict(overrides),
        "runtimes": [r.name for r in state.runtimes or ()] if state else None,
        "missing": {name: _cut(how) for name, how in state.missing.items()} if state else None,
        "pools": [_pool(p) for p in state.pools] if state else None,
        "stopped": [
            {"namespace": ref.namespace, "name": ref.name, "inputsDigest": inputs}
            for ref, inputs in sorted(state.stopped.items())[:_MOST_STOPPED]
        ]
        if state
        else None,
        "unpublished": [
            {"service": ref.label, "reason": why.reason, "message": _cut(why.message)}
            for ref, why in sorted(unpublished.items())[:_MOST_PROBLEMS]
        ],
    }
    return _without_empty(observed)


def is_node_news(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    """Whether the node's state is worth a write: the memory use of other processes changes all the
    time."""
    if before is None or _still(before) != _still(now):
        return True
    was = {pool["name"]: pool.get(_OTHERS, 0) for pool in before.get("pools", ())}
    return any(
        abs(pool[_OTHERS] - was[pool["name"]]) > _MEMORY_STEP * pool["totalBytes"]
        for pool in now.get("pools", ())
        if _OTHERS in pool
    )


def is_news(before: Mapping[str, Any] | None, now: Mapping[str, Any], since_s: float = 0.0) -> bool:
    """Whether a change of an entry is worth a write. `since_s`: how long ago the last one was."""
    if before is None or _counted(before) != _counted(now):
        return True
    if is_other_speed(before.get(SPEED), now.get(SPEED), since_s):
        return True
    was, is_now = before.get("memory", 0), now.get("memory", 0)
    return bool(abs(is_now - was) > _MEMORY_STEP * max(was, is_now))


def _counted(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _UNCOUNTED}


def _still(observed: Mapping[str, Any]) -> dict[str, Any]:
    pools = [{k: v for k, v in p.items() if k != _OTHERS} for p in observed.get("pools", ())]
    return {**observed, "pools": pools}


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty values."""
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def _pool(pool: ObservedPool) -> dict[str, Any]:
    """A pool as NodeState has it."""
    known = {
        "name": pool.name,
        "totalBytes": pool.total_bytes,
        "budgetBytes": pool.budget_bytes,
        _OTHERS: pool.used_by_others_bytes if pool.total_bytes else None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _needs(instance: Instance) -> list[dict[str, Any]]:
    """The estimate, as in NodeState: all of it or none, as a part would be too little."""
    if sum(len(need.weights) for need in instance.needs) > _MOST_WEIGHTS:
        return []
    return [
        {"pool": need.pool, "requiredBytes": need.bytes, "budgetBytes": need.budget_bytes}
        | _without_empty(
            {"weights": [{"file": file, "bytes": size} for file, size in need.weights]}
        )
        for need in instance.needs
    ]


def _inputs(instance: Instance) -> str | None:
    """The inputs as one string: the server tracks the owner of every field, and no one owns parts
    of it."""
    text = json.dumps(instance.inputs, sort_keys=True, separators=(",", ":"))
    return text if len(text) <= _MOST_INPUTS else None


def _refused(revision: RevisionState) -> dict[str, Any]:
    if revision.refused is None:
        return {}
    problems = [_cut(problem) for problem in revision.problems[:_MOST_REFUSALS]]
    return {"revision": revision.refused, "problems": problems}


def _cut(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"
