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
    Drift,
    DriftKind,
    Instance,
    Location,
    ObservedDisk,
    ObservedPool,
    Pending,
    PortHolder,
    RevisionState,
    RuntimeFound,
    TargetState,
)
from reconciler.fleet.command import ServedModel
from reconciler.fleet.model_file import public_inputs
from reconciler.fleet.workload import PoolNeed


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
    said: wire.NodeOverrides | None = None,
    benchmarks: Iterable[BenchmarkResult] = (),
    speeds: Mapping[ObjectRef, float] = MappingProxyType({}),
) -> wire.NodeState:
    """What an agent answers. `state.seen_at` must be set: it is when that was looked at. `speeds`:
    tokens a second now, for people and programs that show them; no plan depends on them."""
    assert state.seen_at is not None
    runtimes = state.runtimes
    return wire.NodeState(
        node=state.target.partition("/")[2],
        agent_version=agent_version,
        fleet=fleet,
        revision=_revision(state.revision or RevisionState()),
        observed_at=state.seen_at,
        said=said,
        missing=dict(state.missing),
        runtimes=None
        if runtimes is None
        else tuple(
            wire.RuntimeState(name=r.name, path=r.path, version=r.version) for r in runtimes
        ),
        pools=tuple(
            wire.PoolState(
                name=p.name,
                total_bytes=p.total_bytes,
                budget_bytes=p.budget_bytes,
                used_by_others_bytes=p.used_by_others_bytes,
                largest_other=p.largest_other or None,
            )
            for p in state.pools
        ),
        disk=None if state.disk is None else _disk(state.disk),
        pressure=pressure,
        instances=tuple(
            _instance(i, speeds.get(i.ref)) for i in sorted(instances, key=lambda i: i.ref)
        ),
        blocked=tuple(blocked),
        stopped=tuple(
            wire.StoppedState(ref=ref_state(ref), inputs_digest=digest)
            for ref, digest in sorted(state.stopped.items())
        ),
        suspended=tuple(ref_state(ref) for ref in sorted(suspended)),
        leaving=tuple(
            wire.LeavingState(ref=ref_state(ref), message=message)
            for ref, message in sorted(state.leaving.items())
        ),
        ports=tuple(
            wire.PortState(ref=ref_state(ref), port=port)
            for ref, port in sorted(state.ports.items())
        ),
        ports_taken=tuple(
            wire.PortHolderState(
                port=port,
                message=holder.message,
                pid=holder.pid,
                program=holder.program or None,
                state_dir=holder.state_dir or None,
            )
            for port, holder in sorted(state.ports_taken.items())
        ),
        downloads=tuple(downloads),
        models=tuple(models),
        benchmarks=tuple(benchmarks),
    )


def read_node_state(state: wire.NodeState) -> tuple[TargetState, tuple[Instance, ...]]:
    """The same in the planner's words. What it says to run are services of this node only."""
    target = f"node/{state.node}"
    revision = state.revision
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
            pools=tuple(
                ObservedPool(
                    p.name,
                    p.total_bytes,
                    p.budget_bytes,
                    p.used_by_others_bytes,
                    p.largest_other or "",
                )
                for p in state.pools
            ),
            disk=None if state.disk is None else _read_disk(state.disk),
            revision=RevisionState(
                fetched=_published(revision.fetched),
                applied=_published(revision.applied),
                refused=_published(revision.refused.revision) if revision.refused else None,
                problems=revision.refused.problems if revision.refused else (),
                held=revision.held or "",
            ),
            stopped={read_ref(s.ref): s.inputs_digest for s in state.stopped},
            leaving={read_ref(s.ref): s.message for s in state.leaving},
            ports={read_ref(s.ref): s.port for s in state.ports},
            ports_taken={
                s.port: PortHolder(s.message, s.pid, s.program or "", s.state_dir or "")
                for s in state.ports_taken
            },
        ),
        tuple(_read_instance(i, target) for i in state.instances),
    )


def ref_state(ref: ObjectRef) -> wire.Ref:
    return wire.Ref(kind=ref.kind, namespace=ref.namespace, name=ref.name)


def read_ref(ref: wire.Ref) -> ObjectRef:
    return ObjectRef(ref.kind, ref.namespace, ref.name)


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
    )


def _instance(instance: Instance, tokens_per_second: float | None) -> wire.InstanceState:
    source, measured = instance.source, dict(instance.measured)
    needs = {need.pool: need for need in instance.needs}
    served = {model.name: model for model in instance.served}
    return wire.InstanceState(
        ref=ref_state(instance.ref),
        name=instance.ref.label,
        runtime=instance.runtime,
        pid=instance.pid,
        port=instance.port,
        endpoint=instance.endpoint,
        ready=instance.ready,
        reason=instance.reason,
        message=instance.message or None,
        since=instance.since,
        inputs=dict(public_inputs(instance.inputs)),
        inputs_digest=instance.inputs_digest,
        render_digest=instance.render_digest,
        source=source and wire.SourceLine(file=source.file, line=source.line, commit=source.commit),
        memory=tuple(
            wire.Memory(
                pool=pool,
                required_bytes=needs[pool].bytes if pool in needs else None,
                budget_bytes=needs[pool].budget_bytes if pool in needs else None,
                measured_bytes=measured.get(pool),
                weights=tuple(
                    wire.Weights(file=file, bytes=size)
                    for file, size in (needs[pool].weights if pool in needs else ())
                ),
            )
            for pool in dict.fromkeys((*needs, *measured))
        ),
        models=tuple(_model(name, served.get(name)) for name in instance.models),
        drift=tuple(
            wire.DriftState(kind=d.kind.value, message=d.message, since=d.since)
            for d in instance.drifts
        ),
        start_seconds=instance.start_seconds,
        tokens_per_second=tokens_per_second,
        gone=instance.gone,
        pending=instance.pending
        and wire.PendingState(
            reason=instance.pending.reason,
            message=instance.pending.message or None,
            since=instance.pending.since,
        ),
    )


def _model(name: str, served: ServedModel | None) -> wire.ModelState:
    if served is None:
        return wire.ModelState(name=name)
    return wire.ModelState(
        name=name,
        state=served.state,
        reason=served.reason or None,
        message=served.message or None,
    )


def _read_instance(instance: wire.InstanceState, target: str) -> Instance:
    source, pending = instance.source, instance.pending
    return Instance(
        ref=read_ref(instance.ref),
        target=target,
        runtime=instance.runtime,
        inputs=instance.inputs,
        inputs_digest=instance.inputs_digest,
        render_digest=instance.render_digest,
        source=Location(source.file, source.line, source.commit) if source else None,
        ready=instance.ready,
        reason=instance.reason,
        message=instance.message or "",
        since=instance.since,
        pid=instance.pid,
        port=instance.port,
        endpoint=instance.endpoint,
        needs=tuple(
            PoolNeed(
                m.pool,
                m.required_bytes,
                m.budget_bytes,
                tuple((weights.file, weights.bytes) for weights in m.weights),
            )
            for m in instance.memory
            if m.required_bytes is not None and m.budget_bytes is not None
        ),
        models=tuple(model.name for model in instance.models),
        start_seconds=instance.start_seconds,
        gone=instance.gone,
        drifts=tuple(Drift(DriftKind(d.kind), d.message, d.since) for d in instance.drift),
        served=tuple(
            ServedModel(m.name, m.state, m.reason or "", m.message or "")
            for m in instance.models
            if m.state is not None
        ),
        measured=tuple(
            (m.pool, m.measured_bytes) for m in instance.memory if m.measured_bytes is not None
        ),
        pending=Pending(pending.reason, pending.message or "", pending.since) if pending else None,
    )
