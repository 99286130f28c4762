"""Compare one service with what runs of it on one target, and say what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from reconciler.api.digest import digest
from reconciler.api.meta import ObjectRef
from reconciler.core.declared import MODEL_PREFIX, DeclaredField, declared_in
from reconciler.core.download import download_bytes, is_missing
from reconciler.core.field_changes import cause_of, field_changes
from reconciler.core.observation import DriftKind, Instance, Location, TargetState
from reconciler.core.plan import Action, Blocked, Change, FieldChange, Impact, Restart
from reconciler.fleet.model_file import public_inputs
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES


class Causes(Protocol):
    """Where things stand, with the commit that made them so."""

    def where(self, ref: ObjectRef, field: str = "") -> Location | None:
        """The line of a field of a declared object, or of the object."""

    def declared(self, fields: Sequence[DeclaredField]) -> Location | None:
        """The one of these that was changed last: its line, or where it was until it was taken
        away. None: none of them was ever stated."""

    def removal(self, ref: ObjectRef, last: Location | None) -> Location | None:
        """The line that an object last stood on, with the commit that removed it."""


def decide(
    want: Workload | None,
    have: Instance | None,
    state: TargetState,
    home: Workload | None,
    causes: Causes,
) -> Change | Blocked | None:
    """One pair; `home` is the same service on the node that has it now. None: as it should be."""
    match want, have:
        case _ if not state.reachable:
            ref = want.ref if want else have.ref if have else None
            assert ref is not None
            return Change(
                Action.UNKNOWN, state.target, ref, "NotReachable", causes.where(ref), state.message
            )
        case None, Instance():
            return _remove(have, home, causes)
        case Workload(suspended=True), None:
            return None
        case Workload(suspended=True), Instance():
            cause = causes.where(want.ref, "spec.suspend")
            return Change(Action.STOP, state.target, want.ref, "Suspended", cause, desired=want)
        case Workload(), None:
            return _create(want, state, causes)
        case Workload(), Instance():
            return _compare(want, have, state, causes)
    raise AssertionError("a pair has at least one side")


def _create(want: Workload, state: TargetState, causes: Causes) -> Change | Blocked:
    cause = causes.where(want.ref)
    if not want.takes_new:
        return _takes_nothing_new(want, cause)
    impact = Impact(download_bytes=download_bytes(want, state))
    return Change(
        Action.CREATE,
        state.target,
        want.ref,
        "Added",
        cause,
        _not_pinned(want),
        impact=impact,
        desired=want,
    )


def _takes_nothing_new(want: Workload, cause: Location | None) -> Blocked:
    where = want.target if want.pool is None else f"pool {want.node} of {want.target}"
    message = f"{where} is unschedulable and takes nothing new"
    return Blocked(want.ref, "NodeTakesNothingNew", message, cause, want.target, (want.ref,))


def _not_pinned(want: Workload) -> str:
    """Said where nothing in the fleet pins a model's bytes: the first download decides them."""
    names = [model.name for model in want.model_files if model.sha256 is None]
    return f"not pinned: {', '.join(names)} has no sha256" if names else ""


def leave(have: Instance, home: Workload | None, causes: Causes) -> Change | Blocked:
    """What runs on a drained node and goes to `home`, or has no node to go to."""
    name = have.target.partition("/")[2]
    cause = causes.where(ObjectRef("FleetNode", "", name), "spec.drain")
    if home is None:
        return Change(Action.STOP, have.target, have.ref, "NodeDrained", cause)
    step = _remove(have, home, causes)
    return replace(step, source=cause) if step.reason == "MovedAway" else step


def _remove(have: Instance, home: Workload | None, causes: Causes) -> Change | Blocked:
    if home is not None and home.suspended:  # no agent is going to answer there
        cause = causes.where(have.ref, "spec.suspend")
        return Change(Action.STOP, have.target, have.ref, "Suspended", cause, desired=home)
    if home is not None:
        there = home.target
        message = f"from {have.target} to {there}"
        cause = causes.where(have.ref, "spec.placement")
        return Change(
            Action.MOVE,
            have.target,
            have.ref,
            "MovedAway",
            cause,
            message,
            desired=home,
            home=there,
        )
    where = causes.removal(have.ref, have.source)
    prune = have.inputs.get("lifecycle", {}).get("prune")
    if "disabled" in (prune, have.by_hand.get("prune")):
        message = "no longer declared, kept by its prune annotation; stop it by hand"
        return Blocked(have.ref, "PruneDisabled", message, where, have.target, (have.ref,))
    message = f"no longer declared; {have.message}" if _is_going(have) else ""
    return Change(Action.DELETE, have.target, have.ref, "Removed", where, message)


def _is_going(have: Instance) -> bool:
    """Whether it was told to go already, and says what it waits for."""
    return have.reason == "Terminating" and bool(have.message)


def _compare(
    want: Workload, have: Instance, state: TargetState, causes: Causes
) -> Change | Blocked | None:
    render = state.renders.get(want.ref)
    same_render = render is None or have.render_digest is None or render == have.render_digest
    if want.inputs_digest == have.inputs_digest:
        return _compare_process(want, have, state, causes, same_render=same_render)
    # The same command after all: a pinned digest that already runs, the port that it has.
    keeps_process = (render is not None and same_render) or _only_lifecycle(want, have)
    fields = field_changes(
        public_inputs(have.inputs), public_inputs(want.inputs), process_changes=not keeps_process
    )
    fields = tuple(
        replace(field, source=causes.declared(declared_in(want, field.path))) for field in fields
    )
    cause = cause_of(fields) or causes.where(want.ref)
    if keeps_process:
        return Change(
            Action.UPDATE,
            state.target,
            want.ref,
            "LifecycleChanged",
            cause,
            fields=fields,
            desired=want,
        )
    if not want.takes_new and _pool_name(want.inputs) != _pool_name(have.inputs):
        return _takes_nothing_new(want, cause)
    reason = (
        "ModelChanged"
        if any(f.path.startswith(MODEL_PREFIX) for f in fields)
        else "SettingsChanged"
    )
    if _is_hot(want, have):
        impact = Impact(restart=Restart.HOT, download_bytes=download_bytes(want, state))
        fields = tuple(replace(field, forces_restart=False) for field in fields)
        return Change(
            Action.UPDATE, state.target, want.ref, reason, cause, "", fields, impact, want
        )
    return _restarting(Action.REPLACE, reason, want, have, state, cause, fields=fields)


def _compare_process(
    want: Workload, have: Instance, state: TargetState, causes: Causes, *, same_render: bool
) -> Change | Blocked | None:
    """The inputs are the same: what became of the process, or would be started from them now."""
    if want.ref in state.restarts:
        cause = causes.where(want.ref)
        return _restarting(Action.REPLACE, "RestartedByHand", want, have, state, cause)
    drifted = [d.message for d in have.drifts if d.kind is DriftKind.RESTART]
    if have.gone or drifted:
        gone_reason = "ModelGone" if have.reason == "ModelGone" else "ProcessGone"
        reason = gone_reason if have.gone else "Drifted"
        message = have.message if have.gone else "; ".join(drifted)
        return _restarting(Action.DRIFT, reason, want, have, state, causes.where(want.ref), message)
    if have.was_started and want.pool is None and is_missing(want, state):
        return _fetched_again(want, have, state, causes.where(want.ref))
    # From afar no render is known: what the node's own agent says of it is used instead.
    deferred = [d for d in have.drifts if d.kind is DriftKind.DEFERRED]
    if same_render and not deferred:
        return _only_shown(want, have, state, causes)
    if want.lifecycle.get("rollout.onUpgrade") == "restart":
        cause = causes.where(want.ref, "spec.rollout.onUpgrade")
        return _restarting(Action.REPLACE, "RenderChanged", want, have, state, cause)
    return Change(
        Action.DEFERRED,
        state.target,
        want.ref,
        "RenderChanged",
        causes.where(want.ref),
        "; ".join(d.message for d in deferred),
        desired=want,
        since=min((d.since for d in deferred), default=None),
    )


def _fetched_again(
    want: Workload, have: Instance, state: TargetState, cause: Location | None
) -> Change:
    """What is declared and not on the disk comes again, whatever made it go away: for a process
    that lives, before it needs it."""
    if have.pid is None:
        return _restarting(Action.DRIFT, "ModelGone", want, have, state, cause)
    impact = Impact(download_bytes=download_bytes(want, state))
    message = "what runs goes on with what it has in memory"
    return Change(
        Action.UPDATE,
        state.target,
        want.ref,
        "ModelGone",
        cause,
        message,
        impact=impact,
        desired=want,
    )


def _only_shown(
    want: Workload, have: Instance, state: TargetState, causes: Causes
) -> Change | Blocked | None:
    """What differs and is not ours to mend; a program in its way before anything else."""
    if message := _in_its_way(have, state):
        cause = causes.where(want.ref)
        return Blocked(want.ref, "PortInUse", message, cause, state.target, (want.ref,))
    shown = [drift for drift in have.drifts if drift.kind is DriftKind.COSMETIC]
    if not shown:
        return None
    return Change(
        Action.DRIFT,
        state.target,
        want.ref,
        "DriftShown",
        causes.where(want.ref),
        "; ".join(drift.message for drift in shown),
        since=min(drift.since for drift in shown),
    )


def _in_its_way(have: Instance, state: TargetState) -> str:
    """Who has the port of a service that has no process; empty: nobody."""
    if have.pid is None and have.port is not None and have.port in state.ports_taken:
        return state.ports_taken[have.port].message
    return "; ".join([d.message for d in have.drifts if d.kind is DriftKind.FOREIGN])


def _is_hot(want: Workload, have: Instance) -> bool:
    """Its process lives and can take the change of single models, while the others answer."""
    row = RUNTIMES.get(want.runtime)
    if row is None or row.many is None or have.pid is None or have.gone:
        return False
    return row.many.changed(public_inputs(have.inputs), public_inputs(want.inputs)) is not None


def _restarting(
    action: Action,
    reason: str,
    want: Workload,
    have: Instance,
    state: TargetState,
    cause: Location | None,
    message: str = "",
    fields: tuple[FieldChange, ...] = (),
) -> Change:
    if want.pool is not None:
        return _rolling(reason, want, have, state, cause, fields)
    impact = Impact(
        restart=Restart.RESTART,
        download_bytes=download_bytes(want, state),
        downtime_seconds=have.start_seconds,
        downtime_basis="unknown" if have.start_seconds is None else "measured",
    )
    return Change(action, state.target, want.ref, reason, cause, message, fields, impact, want)


def _rolling(
    reason: str,
    want: Workload,
    have: Instance,
    state: TargetState,
    cause: Location | None,
    fields: tuple[FieldChange, ...],
) -> Change:
    """Its Deployment lives on, and its pods are recreated."""
    impact = Impact(
        restart=Restart.ROLL,
        download_bytes=download_bytes(want, state, have),
        downtime_seconds=None if want.is_recreated else 0.0,
    )
    return Change(Action.UPDATE, state.target, want.ref, reason, cause, "", fields, impact, want)


def _only_lifecycle(want: Workload, have: Instance) -> bool:
    """Nothing that the process was rendered from differs."""
    old, new = public_inputs(have.inputs), public_inputs(want.inputs)  # one came over the wire
    return digest({**old, "lifecycle": None}) == digest({**new, "lifecycle": None})


def _pool_name(inputs: Mapping[str, Any]) -> str | None:
    pool: Mapping[str, str] = inputs.get("pool", {})
    return pool.get("name")
