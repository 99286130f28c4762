"""What an agent writes of itself into a cluster's objects. Pure.

It owns one entry of each service's `status.instances[]`, by node, and its FleetNode's
`status.observed`. Figures that never stand still are left out of what counts as a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.kube.objects import Manifest
from reconciler.kube.publishing.slices import Unpublished
from reconciler.plan import Instance, TargetState
from reconciler.report.terminal import printable

_MOST_TEXT = 500  # characters: every watcher of the service gets them with every change
_MOST_PROBLEMS = 20
_MEMORY_STEP = 0.1  # share by which measured memory has to move before it is written again
_UNCOUNTED = ("memory", "revision")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A service that has no process here, and why."""

    ref: ObjectRef
    reason: str
    message: str


def instance_entry(instance: Instance, node: str, revision: str | None) -> dict[str, Any]:
    """A service as its node runs it. `revision` is the one that is applied there."""
    measured = sum(size for _, size in instance.measured)
    entry = {
        "node": node,
        "ready": instance.ready,
        "reason": instance.reason,
        "message": _cut(instance.message),
        "port": instance.port,
        "endpoint": instance.endpoint,
        "memory": measured or None,
        "revision": revision,
        "inputsDigest": instance.inputs_digest,
        "since": _stamp(instance.since) if instance.since is not None else None,
    }
    return {key: value for key, value in entry.items() if value not in (None, "")}


def trouble_entry(trouble: Trouble, node: str) -> dict[str, Any]:
    """A service that cannot run there."""
    return {
        "node": node,
        "ready": False,
        "reason": trouble.reason,
        "message": _cut(trouble.message),
    }


def service_status(ref: ObjectRef, entries: Iterable[Mapping[str, Any]]) -> Manifest:
    """To be applied to the status subresource; without an entry, what we wrote before goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "status": {"instances": [dict(entry) for entry in entries]},
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
    *,
    agent_version: str,
    host_ip: str | None,
    held: str | None,
    unpublished: Mapping[ObjectRef, Unpublished],
) -> dict[str, Any]:
    """What a node says of itself, as far as it stands still."""
    revision = state.revision if state else None
    observed = {
        "agentVersion": agent_version,
        "hostIP": host_ip,
        "revision": revision.applied if revision else None,
        "held": _cut(held or (revision.held if revision else "")),
        "runtimes": [r.name for r in state.runtimes or ()] if state else None,
        "pools": [_pool(p.name, p.total_bytes, p.budget_bytes) for p in state.pools]
        if state
        else None,
        "unpublished": [
            {"service": ref.label, "reason": why.reason, "message": _cut(why.message)}
            for ref, why in sorted(unpublished.items())[:_MOST_PROBLEMS]
        ],
    }
    return {key: value for key, value in observed.items() if value not in (None, "", [])}


def is_news(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    """Whether an entry says something that is worth a write."""
    if before is None or _counted(before) != _counted(now):
        return True
    was, is_now = before.get("memory", 0), now.get("memory", 0)
    return bool(abs(is_now - was) > _MEMORY_STEP * max(was, is_now))


def _counted(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in _UNCOUNTED}


def _pool(name: str, total: int | None, budget: int | None) -> dict[str, Any]:
    pool = {"name": name, "totalBytes": total, "budgetBytes": budget}
    return {key: value for key, value in pool.items() if value is not None}


def _cut(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
