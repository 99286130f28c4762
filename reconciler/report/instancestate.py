"""One service of a node, to the words of NodeState and back. Pure."""

from __future__ import annotations

from reconciler.api import nodestate as wire
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Drift, DriftKind, Instance, Location, Pending
from reconciler.fleet.command import ServedModel
from reconciler.fleet.model_file import public_inputs
from reconciler.fleet.workload import PoolNeed


def ref_state(ref: ObjectRef) -> wire.Ref:
    return wire.Ref(kind=ref.kind, namespace=ref.namespace, name=ref.name)


def read_ref(ref: wire.Ref) -> ObjectRef:
    return ObjectRef(ref.kind, ref.namespace, ref.name)


def instance_state(
    instance: Instance, tokens_per_second: float | None, requests: int | None
) -> wire.InstanceState:
    source, pending = instance.source, instance.pending
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
        memory=_memory(instance),
        models=tuple(_model(name, served.get(name)) for name in instance.models),
        drift=tuple(
            wire.DriftState(kind=d.kind.value, message=d.message, since=d.since)
            for d in instance.drifts
        ),
        start_seconds=instance.start_seconds,
        tokens_per_second=tokens_per_second,
        requests_in_flight=requests,
        gone=instance.gone,
        pending=pending
        and wire.PendingState(
            reason=pending.reason,
            message=pending.message or None,
            since=pending.since,
            inputs_digest=pending.inputs_digest,
        ),
    )


def read_instance(instance: wire.InstanceState, target: str) -> Instance:
    source = instance.source
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
        pending=_pending(instance.pending),
    )


def _pending(state: wire.PendingState | None) -> Pending | None:
    if state is None:
        return None
    return Pending(state.reason, state.message or "", state.since, state.inputs_digest)


def _memory(instance: Instance) -> tuple[wire.Memory, ...]:
    needs, measured = {need.pool: need for need in instance.needs}, dict(instance.measured)
    return tuple(
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
