"""How far each node is with a revision, and why it is not further. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reconciler.api.meta import ObjectRef
from reconciler.core.moves import MAY_END
from reconciler.core.observation import Instance, Observation, RevisionState, TargetState
from reconciler.core.plan import Blocked, Change
from reconciler.core.target import REMOVALS
from reconciler.fleet.workload import Workload
from reconciler.report.terminal import short_revision

_SHOWN_PROBLEMS = 3
_SHOWN_LATE = 5

Verdicts = Mapping[ObjectRef, tuple[str, str]]
"""Services that an agent does not run, with with the reason and message that it gives."""


class Stage(StrEnum):
    """How far a node is. Only READY is what was asked for."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    HELD = "held"
    BEHIND = "behind"  # it has not read the revision, or not carried it out yet
    WAITING = "waiting"  # it has the revision; services are not ready yet
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One target and one revision. `is_final`: waiting longer cannot help. `node` names it for
    people: a node by its name alone."""

    node: str
    stage: Stage
    why: str = ""
    is_final: bool = False
    target: str = field(default="", compare=False)


def arrivals(
    revision: str,
    workloads: Iterable[Workload],
    observed: Observation,
    verdicts: Mapping[str, Verdicts],
    lasting: Collection[str],
    changes: Iterable[Change] = (),
    blocked: Iterable[Blocked] = (),
) -> tuple[Arrival, ...]:
    """One a target. `verdicts` are by target; `lasting` are reasons that waiting does not end;
    `changes` and `blocked` are those of the plan for what was observed: what is to go must be gone,
    and a service that is blocked as a whole, or where it is to leave, keeps its target waiting."""
    wanted: dict[str, list[Workload]] = {target: [] for target in observed.targets}
    for workload in workloads:
        wanted.get(workload.target, []).append(workload)
    running: dict[str, dict[ObjectRef, Instance]] = {target: {} for target in observed.targets}
    for instance in observed.instances:
        running[instance.target][instance.ref] = instance
    going, blocked = _going(changes), tuple(blocked)
    reported = []
    for target, state in sorted(observed.targets.items()):
        stuck = {
            ref: item
            for item in blocked
            if item.target is None or (item.target == target and item.home is not None)
            for ref in {item.ref, *item.holds} & running[target].keys()
        }
        held = {ref: f"kept as it is: {item.reason}: {item.message}" for ref, item in stuck.items()}
        leaving = {**going.get(target, {}), **held, **state.leaving}
        staying = frozenset(ref for ref, item in stuck.items() if item.reason not in MAY_END)
        verdict = {**_in_cluster(target, blocked), **verdicts.get(target, {})}
        seen = _NodeSeen(state, running[target], verdict, lasting, leaving, staying)
        reported.append(replace(_arrival(revision, wanted[target], seen), target=target))
    return tuple(reported)


@dataclass(frozen=True, slots=True)
class _NodeSeen:
    """What is known of one node."""

    state: TargetState
    running: Mapping[ObjectRef, Instance]
    verdicts: Verdicts
    lasting: Collection[str]
    leaving: Mapping[ObjectRef, str]
    staying: frozenset[ObjectRef]  # of those, which waiting longer does not end


def _in_cluster(target: str, blocked: Iterable[Blocked]) -> Verdicts:
    """What the plan holds back in a cluster, which has no agent that would say so."""
    if not target.startswith("cluster/"):
        return {}
    return {
        ref: (item.reason, item.message)
        for item in blocked
        if item.target in (None, target)
        for ref in (item.ref, *item.holds)
    }


def _going(changes: Iterable[Change]) -> Mapping[str, Mapping[ObjectRef, str]]:
    """Services that a plan takes away, by target, with what they wait for."""
    leaving: dict[str, dict[ObjectRef, str]] = {}
    for change in changes:
        if change.object is None and change.action in REMOVALS:
            home = (change.home or "").removeprefix("node/").replace("/", " ")
            why = f"still there until it answers on {home}" if home else "still there"
            leaving.setdefault(change.target, {})[change.ref] = why
    return leaving


def _arrival(revision: str, wanted: list[Workload], seen: _NodeSeen) -> Arrival:
    state = seen.state
    node = state.target.removeprefix("node/").replace("/", " ")
    if not state.reachable:
        return Arrival(node, Stage.UNREACHABLE, state.message)
    if state.revision is None or state.revision.applied != revision:
        return _not_there(node, revision, seen)
    late = [
        _late(workload, seen)
        for workload in wanted
        if not workload.suspended and not state.keeps_stopped(workload)
    ]
    reasons = [why for why in late if why is not None]
    reasons += [
        (f"{ref.label} is {why}", ref in seen.staying) for ref, why in sorted(seen.leaving.items())
    ]
    if not reasons:
        return Arrival(node, Stage.READY)
    shown = [text for text, _ in reasons[:_SHOWN_LATE]]
    shown += [f"and {len(reasons) - _SHOWN_LATE} more"] if len(reasons) > _SHOWN_LATE else []
    why = "; ".join(shown)
    return Arrival(node, Stage.WAITING, why, is_final=all(final for _, final in reasons))


def _not_there(node: str, revision: str, seen: _NodeSeen) -> Arrival:
    its = seen.state.revision or RevisionState()
    if its.refused == revision:
        more = len(its.problems) - _SHOWN_PROBLEMS
        problems = [*its.problems[:_SHOWN_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        return Arrival(node, Stage.REFUSED, "; ".join(problems), is_final=True)
    if its.held:
        # One that was fetched before may be what is held: the next is judged on its own.
        is_final = its.fetched in (None, revision)
        return Arrival(node, Stage.HELD, its.held, is_final)
    if its.fetched == revision:
        guarded = [why for why in seen.verdicts.values() if why[0] == "NeedsConfirmation"]
        why = guarded[0][1] if guarded else "its agent is applying it"
        return Arrival(node, Stage.BEHIND, why, is_final=bool(guarded))
    at = f"still on {short_revision(its.applied)}" if its.applied else "no revision was applied yet"
    lost = "" if its.lost_since is None else f": its source cannot be read: {its.lost}"
    return Arrival(node, Stage.BEHIND, f"{at}{lost}")


def _late(workload: Workload, seen: _NodeSeen) -> tuple[str, bool] | None:
    """Why a service is not as it should be, and whether that is for good; None if it is."""
    name, have = workload.ref.label, seen.running.get(workload.ref)
    if verdict := seen.verdicts.get(workload.ref):
        return f"{name} {verdict[0]}: {verdict[1]}", True
    if have is None:
        return f"{name} is not there yet", False
    if have.inputs_digest != workload.inputs_digest:
        return f"{name} still runs as declared before", False
    if have.ready:
        return None
    message = f": {have.message}" if have.message and have.reason != "Downloading" else ""
    return f"{name} {have.reason}{message}", have.reason in seen.lasting
