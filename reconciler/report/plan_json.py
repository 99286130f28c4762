"""A Plan as JSON for programs; `plan_schema.py` describes it. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.core.observation import Location, starts_again
from reconciler.core.plan import Blocked, Change, Impact, Plan

FORMAT_VERSION = 1


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; `schemas/plan.json` describes it."""
    return {
        "formatVersion": FORMAT_VERSION,
        "revision": plan.revision,
        "changes": [change_json(change) for change in plan.changes],
        "blocked": [_blocked_json(item) for item in plan.blocked],
        "unreachable": [
            {"target": state.target, "message": state.message, "seenAt": state.seen_at}
            for state in plan.unreachable
        ],
        "stopped": [
            {"target": state.target, "ref": ref_json(ref), "message": starts_again(ref, state)}
            for state, ref in plan.stopped
        ],
        "summary": plan.summary,
    }


def change_json(change: Change) -> dict[str, Any]:
    """One change: one object on one target."""
    return {
        "action": str(change.action),
        "target": change.target,
        "ref": ref_json(change.ref),
        "object": _object_json(change),
        "reason": change.reason,
        "message": change.message,
        "source": _source_json(change.source),
        "fields": [
            {
                "path": field.path,
                "before": field.before,
                "after": field.after,
                "forcesRestart": field.forces_restart,
                "source": _source_json(field.source),
            }
            for field in change.fields
        ],
        "impact": _impact_json(change.impact),
        "since": change.since,
        "by": change.by or None,
    }


def _object_json(change: Change) -> dict[str, Any]:
    """The one object that changes; for a service as a whole, its own document."""
    if change.object is None:
        return {"apiVersion": API_VERSION, **ref_json(change.ref)}
    api_version, kind, namespace, name = change.object
    return {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}


def ref_json(ref: ObjectRef) -> dict[str, str]:
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _source_json(source: Location | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {"file": source.file, "line": source.line, "commit": source.commit}


def _blocked_json(item: Blocked) -> dict[str, Any]:
    return {
        "ref": ref_json(item.ref),
        "target": item.target,
        "reason": item.reason,
        "message": item.message,
        "source": _source_json(item.source),
        "holds": [ref_json(ref) for ref in item.holds],
        "confirm": item.token,
    }


def _impact_json(impact: Impact) -> dict[str, Any]:
    return {
        "restart": str(impact.restart),
        "downloadBytes": impact.download_bytes,
        "memory": [
            {
                "pool": m.pool,
                "beforeBytes": m.before_bytes,
                "afterBytes": m.after_bytes,
                "peakBytes": m.peak_bytes,
                "budgetBytes": m.budget_bytes,
            }
            for m in impact.memory
        ],
        "disk": impact.disk
        and {
            "path": impact.disk.path,
            "beforeBytes": impact.disk.before_bytes,
            "afterBytes": impact.disk.after_bytes,
        },
        "downtimeSeconds": impact.downtime_seconds,
        "downtimeBasis": impact.downtime_basis,
        "order": impact.order,
        "after": [ref_json(ref) for ref in impact.after],
        "drainSeconds": impact.drain_seconds,
        "stopsFor": ref_json(impact.stops_for) if impact.stops_for else None,
    }
