"""A node as its agent sees it, to the words of NodeState and back. Pure.

`read_node_state(node_state(x))` is x again: a plan made from afar sees what the agent sees, but for
the renders, which only the machine can know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from reconciler.api import nodestate as wire
from reconciler.api.benchmark import BenchmarkResult
from reconciler.api.meta import ObjectRef
from reconciler.api.model import public_source
from reconciler.core.observation import (
    Instance,
    ObservedDisk,
    ObservedPool,
    PortHolder,
    RevisionState,
    RuntimeFound,
    TargetState,
    Verdicts,
)
from reconciler.report.instancestate import instance_state, read_instance, read_ref, ref_state


def node_state(
    state: TargetState,
    instances: Iterable[Instance],
    *,
    agent_version: str,
    fleet: str | None = None,
    blocked: Iterable[wire.BlockedState] = (),
    suspended: Iterable[ObjectRef] = (),
    downloads: Iterable[wire.DownloadState] = (),
    models: Iterable[wire.StoredState] = (),
    pressure: wire.Pressure | None = None,
    overrides: wire.NodeOverrides | None = None,
    benchmarks: Iterable[BenchmarkResult] = (),
    speeds: Mapping[ObjectRef, float] = MappingProxyType({}),
    requests: Mapping[ObjectRef, int] = MappingProxyType({}),
) -> wire.NodeState:
    """What an agent answers. `state.seen_at` must be set: it is when that was looked at. `speeds`:
    tokens a second now, `requests`: those that are answered now, for people and programs that show
    them; no plan depends on them."""
    assert state.seen_at is not None
    return wire.NodeState(
        node=state.target.partition("/")[2],
        agent_version=agent_version,
        fleet=fleet,
        revision=_revision(state.revision or RevisionState()),
        observed_at=state.seen_at,
        overrides=overrides,
        missing=dict(state.missing),
        runtimes=_runtimes(state),
        pools=tuple(map(_pool, state.pools)),
        disk=None if state.disk is None else _disk(state.disk),
        pressure=pressure,
        instances=tuple(
            # A sample is older than an observation: the process may have ended since.
            instance_state(i, speeds.get(i.ref), requests.get(i.ref))
            if i.has_process
            else instance_state(i, None, None)
            for i in sorted(instances, key=lambda i: i.ref)
        ),
        blocked=tuple(blocked),
        stopped=_stopped(state),
        suspended=tuple(ref_state(ref) for ref in sorted(suspended)),
        leaving=_leaving(state),
        ports=_ports(state),
        ports_taken=tuple(_holder(port, who) for port, who in sorted(state.ports_taken.items())),
        downloads=tuple(downloads),
        models=tuple(models),
        benchmarks=tuple(benchmarks),
    )


def read_node_state(state: wire.NodeState) -> tuple[TargetState, tuple[Instance, ...]]:
    """The same in the planner's words. What it says to run are services of this node only."""
    target = f"node/{state.node}"
    return (
        TargetState(
            target,
            reachable=True,
            seen_at=state.observed_at,
            missing=state.missing,
            cached=frozenset(
                known
                for model in state.models
                for known in (model.sha256, *map(public_source, model.sources))
            ),
            runtimes=None
            if state.runtimes is None
            else tuple(RuntimeFound(r.name, r.path, r.version) for r in state.runtimes),
            pools=tuple(map(_read_pool, state.pools)),
            disk=None if state.disk is None else _read_disk(state.disk),
            revision=_read_revision(state.revision),
            stopped={read_ref(s.ref): s.inputs_digest for s in state.stopped},
            stopped_since={read_ref(s.ref): s.since for s in state.stopped if s.since is not None},
            leaving={read_ref(s.ref): s.message for s in state.leaving},
            ports={read_ref(s.ref): s.port for s in state.ports},
            ports_taken={
                s.port: PortHolder(s.message, s.pid, s.program or "", s.state_dir or "")
                for s in state.ports_taken
            },
            verdicts=_verdicts(state),
        ),
        tuple(read_instance(i, target) for i in state.instances),
    )


def verdicts_of(state: wire.NodeState) -> dict[ObjectRef, tuple[str, str]]:
    """Return reason and message of each service that an agent does not run as declared."""
    return {
        read_ref(ref): (b.reason, b.message) for b in state.blocked for ref in (*b.holds, b.ref)
    }


def _verdicts(state: wire.NodeState) -> Verdicts | None:
    fetched = _published(state.revision.fetched)
    return Verdicts(fetched, verdicts_of(state)) if fetched and state.blocked else None


def _runtimes(state: TargetState) -> tuple[wire.RuntimeState, ...] | None:
    if state.runtimes is None:
        return None
    return tuple(
        wire.RuntimeState(name=r.name, path=r.path, version=r.version) for r in state.runtimes
    )


def _pool(pool: ObservedPool) -> wire.PoolState:
    return wire.PoolState(
        name=pool.name,
        total_bytes=pool.total_bytes,
        budget_bytes=pool.budget_bytes,
        used_by_others_bytes=pool.used_by_others_bytes,
        largest_other=pool.largest_other or None,
    )


def _read_pool(pool: wire.PoolState) -> ObservedPool:
    return ObservedPool(
        pool.name,
        pool.total_bytes,
        pool.budget_bytes,
        pool.used_by_others_bytes,
        pool.largest_other or "",
    )


def _stopped(state: TargetState) -> tuple[wire.StoppedState, ...]:
    return tuple(
        wire.StoppedState(
            ref=ref_state(ref), inputs_digest=digest, since=state.stopped_since.get(ref)
        )
        for ref, digest in sorted(state.stopped.items())
    )


def _leaving(state: TargetState) -> tuple[wire.LeavingState, ...]:
    return tuple(
        wire.LeavingState(ref=ref_state(ref), message=message)
        for ref, message in sorted(state.leaving.items())
    )


def _ports(state: TargetState) -> tuple[wire.PortState, ...]:
    return tuple(
        wire.PortState(ref=ref_state(ref), port=port) for ref, port in sorted(state.ports.items())
    )


def _holder(port: int, holder: PortHolder) -> wire.PortHolderState:
    return wire.PortHolderState(
        port=port,
        message=holder.message,
        pid=holder.pid,
        program=holder.program or None,
        state_dir=holder.state_dir or None,
    )


def _disk(disk: ObservedDisk) -> wire.DiskState:
    return wire.DiskState(
        path=disk.path,
        total_bytes=disk.total_bytes,
        free_bytes=max(0, disk.free_bytes),
        keep_bytes=disk.keep_bytes,
        arrived=tuple(
            wire.Arrived(model=model, bytes=size) for model, size in sorted(disk.arrived.items())
        ),
        given_up_bytes=disk.given_up_bytes,
    )


def _read_disk(disk: wire.DiskState) -> ObservedDisk:
    return ObservedDisk(
        disk.path,
        disk.total_bytes,
        disk.free_bytes,
        disk.keep_bytes,
        {each.model: each.bytes for each in disk.arrived},
        disk.given_up_bytes,
    )


def _published(revision: str | None) -> str | None:
    """A revision under the name that its reconciler gave it. What was read under it shows in the
    inputs of each instance."""
    return None if revision is None else revision.partition(wire.OBJECTS_MARK)[0]


def _revision(revision: RevisionState) -> wire.Revision:
    refused = revision.refused
    return wire.Revision(
        fetched=revision.fetched,
        applied=revision.applied,
        refused=None
        if refused is None
        else wire.RefusedRevision(revision=refused, problems=revision.problems),
        held=revision.held or None,
        lost=None
        if revision.lost_since is None
        else wire.LostSource(since=revision.lost_since, message=revision.lost),
    )


def _read_revision(revision: wire.Revision) -> RevisionState:
    return RevisionState(
        fetched=_published(revision.fetched),
        applied=_published(revision.applied),
        refused=_published(revision.refused.revision) if revision.refused else None,
        problems=revision.refused.problems if revision.refused else (),
        held=revision.held or "",
        lost=revision.lost.message if revision.lost else "",
        lost_since=revision.lost.since if revision.lost else None,
    )
