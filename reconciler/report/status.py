"""What runs where and how it is: what there is to say, and that as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import NodeState
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.usage import deviation, sharers
from reconciler.plan import Instance, Observation, TargetState
from reconciler.report.plan_json import ref_json


@dataclass(frozen=True, slots=True)
class Declared:
    """A service that should run on `node`, or that has none (None); `reason` and `message` say why
    it does not, where that is known. `cluster`: of a node that is a pool, whose it is."""

    ref: ObjectRef
    reason: str = "NotRunning"
    message: str = ""
    node: str | None = None
    cluster: str | None = None

    @property
    def target(self) -> str | None:
        if self.node is None:
            return None
        return f"node/{self.node}" if self.cluster is None else f"cluster/{self.cluster}"


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that is known. `states` are the agents' own answers, by target; `revision` is the
    fleet's newest one, where it can be read."""

    observed: Observation
    declared: tuple[Declared, ...] = ()
    states: Mapping[str, NodeState] = field(default_factory=dict)
    revision: str | None = None

    def on(self, target: str) -> list[Instance]:
        """What runs there, in order."""
        return sorted(
            (i for i in self.observed.instances if i.target == target), key=lambda i: i.ref
        )

    def absent(self, target: str | None) -> list[Declared]:
        """What should run there and does not; None: what has no node at all."""
        there = {i.ref for i in self.observed.instances if i.target == target or target is None}
        return sorted(
            (d for d in self.declared if d.target == target and d.ref not in there),
            key=lambda d: d.ref,
        )


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A memory pool with what our services take of it, estimated. None: not known, because one of
    them could not be weighed for instance."""

    name: str
    used_bytes: int | None
    budget_bytes: int | None
    others_bytes: int | None


def pool_uses(state: TargetState, instances: Iterable[Instance]) -> tuple[PoolUse, ...]:
    """The node's pools, in its order."""
    running = [i for i in instances if i.pid is not None]
    weighed, ledger = all(i.needs for i in running), Ledger(running)
    return tuple(
        PoolUse(
            p.name,
            ledger.taken_bytes(p.name) if weighed else None,
            p.budget_bytes,
            p.used_by_others_bytes,
        )
        for p in state.pools
    )


def status_json(status: Status) -> dict[str, Any]:
    """`{revision, nodes[], services[]}`; a declared service that runs nowhere is there, not
    ready."""
    refs = {i.ref for i in status.observed.instances} | {d.ref for d in status.declared}
    return {
        "revision": status.revision,
        "nodes": [_node_json(status, s) for _, s in sorted(status.observed.targets.items())],
        "services": [_service_json(status, ref) for ref in sorted(refs)],
    }


def _node_json(status: Status, state: TargetState) -> dict[str, Any]:
    said, its = status.states.get(state.target), state.revision
    return {
        "name": state.target.partition("/")[2],
        "target": state.target,
        "reachable": state.reachable,
        "seenAt": state.seen_at,
        "message": state.message,
        "missing": dict(state.missing),
        "agentVersion": said and said.agent_version,
        "revision": its
        and {
            "fetched": its.fetched,
            "applied": its.applied,
            "refused": its.refused,
            "problems": list(its.problems),
            "held": its.held or None,
        },
        "pools": [
            {
                "name": pool.name,
                "usedBytes": pool.used_bytes,
                "budgetBytes": pool.budget_bytes,
                "usedByOthersBytes": pool.others_bytes,
            }
            for pool in pool_uses(state, status.on(state.target))
        ],
        "pressure": said and said.pressure and said.pressure.level,
        "downloads": [
            d.model_dump(mode="json", by_alias=True) for d in (said.downloads if said else ())
        ],
    }


def _service_json(status: Status, ref: ObjectRef) -> dict[str, Any]:
    found = [i for i in status.observed.instances if i.ref == ref]
    missing = [
        d for d in status.declared if d.ref == ref and not any(i.target == d.target for i in found)
    ]
    bad = next((i for i in found if not i.ready), None) or next(iter(missing), None)
    shown = bad or found[0]
    return {
        "ref": ref_json(ref),
        "ready": bad is None,
        "reason": shown.reason,
        "message": shown.message,
        "placements": [_placement_json(i, status) for i in found]
        + [
            {
                **dict.fromkeys(("pid", "port", "endpoint", "since")),
                "node": d.node,
                "target": d.target,
                "ready": False,
                "reason": d.reason,
                "message": d.message,
                "models": [],
                "memory": [],
                "deviation": None,
            }
            for d in missing
            if d.node is not None and found
        ],
        "endpoint": next((_chat_url(i) for i in found if i.endpoint), None),
        "advertisedModels": sorted({name for i in found if i.ready for name in advertised(i)}),
    }


def _placement_json(instance: Instance, status: Status) -> dict[str, Any]:
    """`deviation` is how far what is measured lies from the estimate: 0.02 is 2 % more."""
    beside = sharers(i.needs for i in status.on(instance.target) if i.pid is not None)
    deviates = deviation(instance.needs, instance.measured, beside)
    return {
        "node": instance.inputs.get("pool", {}).get("name") or instance.target.partition("/")[2],
        "target": instance.target,
        "ready": instance.ready,
        "reason": instance.reason,
        "message": instance.message,
        "pid": instance.pid,
        "port": instance.port,
        "endpoint": instance.endpoint,
        "since": instance.since,
        "models": [
            {"name": m.name, "state": m.state, "reason": m.reason or None, "message": m.message}
            for m in instance.served
        ],
        "memory": _memory_json(instance),
        "deviation": None if deviates is None else round(deviates, 3),
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


def advertised(instance: Instance) -> tuple[str, ...]:
    """The models that clients may ask for: not those that failed, or that no router lists."""
    broken = {
        m.name
        for m in instance.served
        if m.state in ("failed", "quarantined") or m.reason == "NotListed"
    }
    return tuple(name for name in instance.models if name not in broken)


def _chat_url(instance: Instance) -> str:
    return f"{instance.endpoint}/v1/chat/completions"
