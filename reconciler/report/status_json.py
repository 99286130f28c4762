"""A status as JSON: what `status -o json` prints, and what pages are made from. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.capacity.usage import deviation
from reconciler.core.observation import Instance, TargetState
from reconciler.report.plan_json import ref_json
from reconciler.report.speeds import speed_json
from reconciler.report.status import (
    Status,
    advertised,
    base_url,
    is_well,
    pool_uses,
    speaks,
)
from reconciler.runtimes.apis import first_path


def status_json(status: Status, *, all_services: bool = True) -> dict[str, Any]:
    """`{revision, nodes[], services[]}`; a declared service that runs nowhere is there, not
    ready. Not all: those of which something is to be reported."""
    refs = status.refs if all_services else _unwell(status)
    return {
        "revision": status.revision,
        "nodes": [node_json(status, s) for _, s in sorted(status.observed.targets.items())],
        "services": [service_json(status, ref) for ref in sorted(refs)],
    }


def _unwell(status: Status) -> set[ObjectRef]:
    absent = (d for t in (*status.observed.targets, None) for d in status.absent(t))
    declared = {(d.target, d.ref): d for d in status.declared}
    return {d.ref for d in absent if not d.is_meant} | {
        i.ref for i in status.observed.instances if not is_well(i, declared.get((i.target, i.ref)))
    }


def node_json(status: Status, state: TargetState) -> dict[str, Any]:
    answer, its = status.states.get(state.target), state.revision
    return {
        "name": state.target.partition("/")[2],
        "target": state.target,
        "declared": state.target not in status.left,
        "reachable": state.reachable,
        "seenAt": state.seen_at,
        "message": state.message,
        "missing": dict(state.missing),
        "agentVersion": answer and answer.agent_version,
        "revision": its
        and {
            "fetched": its.fetched,
            "applied": its.applied,
            "refused": its.refused,
            "problems": list(its.problems),
            "held": its.held or None,
            "lost": None
            if its.lost_since is None
            else {"since": its.lost_since, "message": its.lost},
        },
        "pools": [
            {
                "name": pool.name,
                "usedBytes": pool.used_bytes,
                "budgetBytes": pool.budget_bytes,
                "usedByOthersBytes": pool.others_bytes,
            }
            for pool in pool_uses(state, status.taking(state.target))
        ],
        "pressure": answer and answer.pressure and answer.pressure.level,
        "downloads": [
            d.model_dump(mode="json", by_alias=True) for d in (answer.downloads if answer else ())
        ],
    }


def service_json(status: Status, ref: ObjectRef) -> dict[str, Any]:
    instances, targets = status.of(ref), {i.target for i in status.of(ref)}
    missing = [d for d in status.meant(ref) if d.target not in targets]
    bad = next((i for i in instances if not i.ready), None) or next(iter(missing), None)
    shown = bad or instances[0]
    return {
        "ref": ref_json(ref),
        "ready": bad is None,
        "reason": shown.reason,
        "message": shown.message,
        "placements": [_placement_json(i, status) for i in instances]
        + [
            {
                **dict.fromkeys(("pid", "port", "endpoint", "baseUrl")),
                "since": d.since,
                "apis": [],
                "node": d.node,
                "target": d.target,
                "ready": False,
                "reason": d.reason,
                "message": d.message,
                "models": [],
                "memory": [],
                "pending": None,
                "deviation": None,
                "benchmarks": [],
            }
            for d in missing
            if d.node is not None and instances
        ],
        "endpoint": next((_first_url(i) for i in instances if i.endpoint), None),
        "advertisedModels": sorted({name for i in instances if i.ready for name in advertised(i)}),
    }


def _placement_json(instance: Instance, status: Status) -> dict[str, Any]:
    """`deviation` is how far what is measured lies from the estimate: 0.02 is 2 % more."""
    deviates = deviation(instance.needs, instance.measured, status.sharers(instance.target))
    return {
        "node": instance.inputs.get("pool", {}).get("name") or instance.target.partition("/")[2],
        "target": instance.target,
        "ready": instance.ready,
        "reason": instance.reason,
        "message": instance.message,
        "pid": instance.pid,
        "port": instance.port,
        "endpoint": instance.endpoint,
        "baseUrl": base_url(instance),
        "apis": [{"name": api.name, "path": api.path} for api in speaks(instance)],
        "since": instance.since,
        "models": [
            {"name": m.name, "state": m.state, "reason": m.reason or None, "message": m.message}
            for m in instance.served
        ],
        "memory": _memory_json(instance),
        "pending": instance.pending
        and {
            "reason": instance.pending.reason,
            "message": instance.pending.message,
            "since": instance.pending.since,
        },
        "tokensPerSecond": status.tokens_per_second(instance),
        "requestsInFlight": status.requests_in_flight(instance),
        "deviation": None if deviates is None else round(deviates, 3),
        "benchmarks": [speed_json(*result) for result in status.benchmarks(instance)],
    }


def _memory_json(instance: Instance) -> list[dict[str, Any]]:
    needs, measured = {n.pool: n for n in instance.needs}, dict(instance.measured)
    return [
        {
            "pool": pool,
            "requiredBytes": needs[pool].bytes if pool in needs else None,
            "budgetBytes": needs[pool].budget_bytes if pool in needs else None,
            "measuredBytes": measured.get(pool),
        }
        for pool in dict.fromkeys((*needs, *measured))
    ]


def _first_url(instance: Instance) -> str:
    return f"{instance.endpoint}{first_path(speaks(instance))}"
